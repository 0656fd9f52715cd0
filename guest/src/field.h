/*
 * Fields: `tag u16, length u32, value`, little endian, one after another. Reader and writer over a
 * buffer of the caller. Neither allocates nor performs I/O.
 *
 * Invariants: the reader never gives a value outside its buffer; the writer never writes past its
 * capacity and, once it did not fit, stays `overflowed` until it is rolled back to a mark.
 */
#ifndef PERDURE_FIELD_H
#define PERDURE_FIELD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FIELD_HEADER 6u

struct bytes {
  const uint8_t *at;
  size_t length;
};

struct field {
  uint16_t tag;
  struct bytes value;
};

struct field_reader {
  const uint8_t *at;
  const uint8_t *end;
  bool malformed;
};

struct field_writer {
  uint8_t *at;
  size_t length;
  size_t capacity;
  bool overflowed;
};

uint16_t wire_get_u16(const uint8_t *at);
uint32_t wire_get_u32(const uint8_t *at);
uint64_t wire_get_u64(const uint8_t *at);
void wire_put_u16(uint8_t *at, uint16_t value);
void wire_put_u32(uint8_t *at, uint32_t value);
void wire_put_u64(uint8_t *at, uint64_t value);

void field_reader_open(struct field_reader *reader, struct bytes buffer);
/* The next field, or false at the end and where the rest is malformed (`malformed` says which). */
bool field_next(struct field_reader *reader, struct field *field);
/* A number; false where the value is not 8 bytes long. */
bool field_number(const struct field *field, uint64_t *number);

void field_writer_open(struct field_writer *writer, uint8_t *buffer, size_t capacity);
void field_put_bytes(struct field_writer *writer, uint16_t tag, const void *value, size_t length);
void field_put_string(struct field_writer *writer, uint16_t tag, const char *text);
void field_put_number(struct field_writer *writer, uint16_t tag, uint64_t number);
/* Nested fields: everything put between open and close is the value of one field. */
size_t field_open(struct field_writer *writer, uint16_t tag);
void field_close(struct field_writer *writer, size_t opened);
/* Forgets everything after `mark` (a former `length`), an overflow included. */
void field_roll_back(struct field_writer *writer, size_t mark);

/* A copy with a terminating zero, or false where it does not fit. */
bool bytes_to_string(struct bytes value, char *buffer, size_t capacity);
bool bytes_equal(struct bytes value, const char *text);

#endif
