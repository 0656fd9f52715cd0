/* Output logs: head, tail, what was cut between, room and budget. */
#include <string.h>

#include "../../src/output_log.h"
#include "../check.h"
#include "unit.h"

/* Every byte says its own offset, so that any mistake in the ring shows. */
static uint8_t byte_at(uint64_t offset) { return (uint8_t)(offset * 31 + (offset >> 8)); }
static enum channel channel_at(uint64_t offset) {
  return offset / 7 % 3 == 1 ? CHANNEL_STDERR : CHANNEL_STDOUT;
}

static void append_to(struct output_log *log, uint64_t end) {
  while (log->end < end) {
    uint8_t run[64];
    size_t length = 0;
    enum channel channel = channel_at(log->end);
    while (length < sizeof run && log->end + length < end &&
           channel_at(log->end + length) == channel) {
      run[length] = byte_at(log->end + length);
      length++;
    }
    output_log_append(log, channel, run, length);
  }
}

/* Reads from `offset` to the end; true where everything is right and one cut at most. */
static bool read_through(const struct output_log *log, uint64_t offset, size_t step,
                         uint64_t *cut_from, uint64_t *cut_to) {
  struct output_piece piece;
  *cut_from = *cut_to = 0;
  while (output_log_next(log, offset, step, &piece)) {
    if (piece.offset != offset) return false;
    if (piece.channel == CHANNEL_CUT) {
      if (*cut_to != 0 || piece.cut_to <= offset) return false;
      *cut_from = offset;
      *cut_to = piece.cut_to;
      offset = piece.cut_to;
      continue;
    }
    if (piece.length == 0 || piece.length > step) return false;
    for (size_t i = 0; i < piece.length; i++) {
      if (piece.bytes[i] != byte_at(offset + i)) return false;
      if (channel_at(offset + i) != piece.channel) return false;
    }
    offset += piece.length;
  }
  return offset == log->end;
}

static void test_output_log(void) {
  static const size_t capacities[] = {4096, 5000, 65536, 1u << 20};
  for (size_t i = 0; i < sizeof capacities / sizeof capacities[0]; i++) {
    size_t capacity = capacities[i];
    struct output_log log;
    uint64_t from, to;
    CHECK(output_log_open(&log, capacity));
    CHECK(read_through(&log, 0, 100, &from, &to) && output_log_start(&log) == 0);
    append_to(&log, capacity); /* exactly full: nothing is cut */
    CHECK(read_through(&log, 0, 1000, &from, &to) && to == 0 && output_log_start(&log) == 0);
    append_to(&log, capacity + 1);
    CHECK(read_through(&log, 0, 4096, &from, &to));
    CHECK(from == capacity / 4 && to == capacity / 4 + 1 && output_log_start(&log) == to);
    append_to(&log, 3 * capacity + 123);
    CHECK(read_through(&log, 0, 333, &from, &to));
    CHECK(from == capacity / 4 && to == log.end - (capacity - capacity / 4));
    CHECK(read_through(&log, from + 5, 64, &from, &to) && from == capacity / 4 + 5);
    CHECK(read_through(&log, log.end - 10, 64, &from, &to) && to == 0);
    struct output_piece piece;
    CHECK(!output_log_next(&log, log.end, 64, &piece));
    CHECK(!output_log_next(&log, log.end + 1, 64, &piece));
    output_log_close(&log);
  }
}

/* One append that is larger than everything keeps its head and its tail. */
static void test_output_log_large_append(void) {
  static uint8_t bytes[50000];
  for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 7);
  struct output_log log;
  struct output_piece piece;
  CHECK(output_log_open(&log, 8192));
  output_log_append(&log, CHANNEL_STDERR, bytes, sizeof bytes);
  CHECK(log.end == sizeof bytes && output_log_start(&log) == sizeof bytes - 6144);
  CHECK(output_log_next(&log, 0, 99999, &piece) && piece.length == 2048);
  CHECK(piece.channel == CHANNEL_STDERR && memcmp(piece.bytes, bytes, 2048) == 0);
  CHECK(output_log_next(&log, sizeof bytes - 1, 10, &piece) && piece.bytes[0] == bytes[49999]);
  output_log_close(&log);
}

/* P3: what room says fits without cutting anything from the offset on. */
static void test_output_log_room(void) {
  unsigned long long random = 12345;
  for (unsigned round = 0; round < 200; round++) {
    struct output_log log;
    size_t capacity = 4096 + random_next(&random) % 60000;
    CHECK(output_log_open(&log, capacity));
    uint64_t reader_at = 0;
    for (unsigned step = 0; step < 40; step++) {
      size_t wanted = 1 + random_next(&random) % 20000;
      size_t room = output_log_room(&log, reader_at, wanted);
      CHECK(room <= wanted);
      append_to(&log, log.end + room);
      uint64_t from, to;
      CHECK(read_through(&log, reader_at, 4096, &from, &to) && to == 0);
      if (random_next(&random) % 2 == 0) {
        reader_at += random_next(&random) % (log.end - reader_at + 1);
      }
      CHECK(reader_at < log.end || room > 0 || wanted == 0 || log.end == 0);
    }
    output_log_close(&log);
  }
}

/* L4: beyond the budget logs cut earlier, but never lose their order or their end. */
static void test_output_log_budget(void) {
  struct output_log log;
  uint64_t from, to;
  output_log_set_budget(20000);
  CHECK(output_log_open(&log, 1u << 20));
  append_to(&log, 300000);
  CHECK(read_through(&log, 0, 4096, &from, &to) && to > 0 && log.end == 300000);
  CHECK(log.head.size + log.tail.size < 20000);
  size_t room = output_log_room(&log, log.end, 65536);
  CHECK(room > 0 && room <= log.tail.size);
  output_log_close(&log);
  output_log_set_budget(64u << 20);
}

void unit_output_logs(void) {
  test_output_log();
  test_output_log_large_append();
  test_output_log_room();
  test_output_log_budget();
}
