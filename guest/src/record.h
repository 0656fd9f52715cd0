/*
 * Records of an outflow: `length u32`, then fields. Collected, so that a thousand small ones are few writes.
 * For children.
 */
#ifndef PERDURE_RECORD_H
#define PERDURE_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "field.h"
#include "protocol.h"

#define RECORDS_HELD (32u << 10)

struct record_writer {
  int fd;
  uint8_t held[RECORDS_HELD];
  size_t length;
  bool is_unread; /* the other end is closed: nothing more arrives */
};

void record_writer_open(struct record_writer *writer, int fd);
/* Begins a record, to be filled through `fields`, of at most RECORD_MAX bytes. */
void record_begin(struct record_writer *writer, struct field_writer *fields);
/* Keeps the record that was begun. False, and nothing of it is kept, where it did not fit. */
bool record_end(struct record_writer *writer, const struct field_writer *fields);
/* Writes what is held, waiting as it must. */
void record_flush(struct record_writer *writer);

#endif
