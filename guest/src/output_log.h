/*
 * What a process wrote: the head and the tail of its output, stdout and stderr in the order they
 * were read, with one running offset. Plain memory, no I/O.
 *
 * Invariants:
 *  L1 Offsets count every byte ever appended; the log never renumbers.
 *  L2 Held are [0, head_length) and [tail_start, end). As long as nothing was cut the two touch.
 *  L3 Once bytes between head and tail are cut the head does not change any more.
 *  L4 Memory is taken as output arrives, at most `capacity` bytes and an eighth (one bit per byte
 *     says which channel). All logs together stay within a budget; beyond it a log cuts earlier
 *     instead of growing.
 */
#ifndef PERDURE_OUTPUT_LOG_H
#define PERDURE_OUTPUT_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol.h"

/* A run of bytes with a bit per byte: 0 stdout, 1 stderr. */
struct output_store {
  uint8_t *bytes;
  uint8_t *channels;
  size_t size;
};

struct output_log {
  struct output_store head;
  struct output_store tail; /* a ring */
  size_t head_max;
  size_t tail_max;
  size_t head_length;
  size_t tail_first; /* index of the oldest byte in the ring */
  size_t tail_length;
  bool head_closed;
  uint64_t end;
};

struct output_piece {
  enum channel channel; /* CHANNEL_CUT: the bytes [offset, cut_to) are gone */
  uint64_t offset;
  const uint8_t *bytes;
  size_t length;
  uint64_t cut_to;
};

/* Bytes that all logs together may take. */
void output_log_set_budget(size_t bytes);

bool output_log_open(struct output_log *log, size_t capacity);
void output_log_close(struct output_log *log);
void output_log_append(struct output_log *log, enum channel channel, const uint8_t *bytes,
                       size_t length);
/* First offset from which on everything is held. */
uint64_t output_log_start(const struct output_log *log);
/*
 * How many of `wanted` bytes can be appended without cutting anything at or after `offset` that is
 * still held. Takes the memory for them where it can.
 */
size_t output_log_room(struct output_log *log, uint64_t offset, size_t wanted);
/* The next piece from `offset` on, at most `length_max` bytes; false where nothing follows yet. */
bool output_log_next(const struct output_log *log, uint64_t offset, size_t length_max,
                     struct output_piece *piece);

#endif
