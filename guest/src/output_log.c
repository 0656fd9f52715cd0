/* See output_log.h. */
#include "output_log.h"

#include <stdlib.h>
#include <string.h>

#define STORE_MIN 4096u

static size_t budget_bytes = 64u << 20;
static size_t taken_bytes;

void output_log_set_budget(size_t bytes) { budget_bytes = bytes; }

static size_t store_cost(size_t size) { return size + (size + 7) / 8; }

static void set_channel(struct output_store *store, size_t index, bool is_stderr) {
  uint8_t bit = (uint8_t)(1u << (index % 8));
  if (is_stderr) {
    store->channels[index / 8] |= bit;
  } else {
    store->channels[index / 8] &= (uint8_t)~bit;
  }
}

static bool get_channel(const struct output_store *store, size_t index) {
  return (store->channels[index / 8] >> (index % 8) & 1) != 0;
}

static void store_put(struct output_store *store, size_t index, bool is_stderr,
                      const uint8_t *bytes, size_t length) {
  memcpy(store->bytes + index, bytes, length);
  size_t at = index;
  size_t end = index + length;
  for (; at < end && at % 8 != 0; at++) set_channel(store, at, is_stderr);
  if (end - at >= 8) {
    memset(store->channels + at / 8, is_stderr ? 0xff : 0, (end - at) / 8);
    at += (end - at) / 8 * 8;
  }
  for (; at < end; at++) set_channel(store, at, is_stderr);
}

/* How many bytes from `index` on, at most `length_max`, are of the same channel. */
static size_t store_run(const struct output_store *store, size_t index, size_t length_max) {
  bool is_stderr = get_channel(store, index);
  uint8_t whole = is_stderr ? 0xff : 0;
  size_t at = index;
  size_t end = index + length_max;
  while (at < end) {
    if (at % 8 == 0 && end - at >= 8 && store->channels[at / 8] == whole) {
      at += 8;
    } else if (get_channel(store, at) == is_stderr) {
      at++;
    } else {
      break;
    }
  }
  return at - index;
}

static bool store_take(struct output_store *store, size_t size, bool within_budget) {
  size_t cost = store_cost(size);
  if (within_budget && (cost > budget_bytes || taken_bytes > budget_bytes - cost)) return false;
  uint8_t *bytes = malloc(cost);
  if (bytes == NULL) return false;
  store->bytes = bytes;
  store->channels = bytes + size;
  store->size = size;
  taken_bytes += cost;
  return true;
}

static void store_give_back(struct output_store *store) {
  if (store->bytes != NULL) taken_bytes -= store_cost(store->size);
  free(store->bytes);
  memset(store, 0, sizeof *store);
}

static size_t grown_size(size_t size, size_t wanted, size_t max) {
  size_t grown = size < STORE_MIN ? STORE_MIN : size;
  while (grown < wanted && grown < max) grown *= 2;
  return grown < max ? grown : max;
}

static bool head_grow(struct output_log *log, size_t wanted) {
  if (wanted > log->head_max) wanted = log->head_max;
  if (wanted <= log->head.size) return true;
  struct output_store grown;
  if (!store_take(&grown, grown_size(log->head.size, wanted, log->head_max), true)) return false;
  if (log->head_length > 0) {
    memcpy(grown.bytes, log->head.bytes, log->head_length);
    memcpy(grown.channels, log->head.channels, (log->head_length + 7) / 8);
  }
  store_give_back(&log->head);
  log->head = grown;
  return true;
}

/* Copies the ring to the start of a larger store, run by run. */
static bool tail_grow(struct output_log *log, size_t wanted) {
  if (wanted > log->tail_max) wanted = log->tail_max;
  if (wanted <= log->tail.size) return true;
  struct output_store grown;
  if (!store_take(&grown, grown_size(log->tail.size, wanted, log->tail_max), true)) return false;
  size_t copied = 0;
  while (copied < log->tail_length) {
    size_t index = (log->tail_first + copied) % log->tail.size;
    size_t run = log->tail.size - index;
    if (run > log->tail_length - copied) run = log->tail_length - copied;
    run = store_run(&log->tail, index, run);
    store_put(&grown, copied, get_channel(&log->tail, index), log->tail.bytes + index, run);
    copied += run;
  }
  store_give_back(&log->tail);
  log->tail = grown;
  log->tail_first = 0;
  return true;
}

bool output_log_open(struct output_log *log, size_t capacity) {
  memset(log, 0, sizeof *log);
  log->head_max = capacity / 4;
  log->tail_max = capacity - log->head_max;
  /* The smallest tail is outside the budget, so that an append always has somewhere to go. */
  return store_take(&log->tail, log->tail_max < STORE_MIN ? log->tail_max : STORE_MIN, false);
}

void output_log_close(struct output_log *log) {
  store_give_back(&log->head);
  store_give_back(&log->tail);
}

static uint64_t tail_start(const struct output_log *log) { return log->end - log->tail_length; }

static size_t append_head(struct output_log *log, bool is_stderr, const uint8_t *bytes,
                          size_t length) {
  if (log->head_closed) return 0;
  bool grew = head_grow(log, log->head_length + length);
  size_t room = log->head.size - log->head_length;
  size_t taken = length < room ? length : room;
  if (taken > 0) store_put(&log->head, log->head_length, is_stderr, bytes, taken);
  log->head_length += taken;
  log->end += taken;
  if (log->head_length == log->head_max || (!grew && taken < length)) log->head_closed = true;
  return taken;
}

static void append_tail(struct output_log *log, bool is_stderr, const uint8_t *bytes,
                        size_t length) {
  tail_grow(log, log->tail_length + length);
  size_t size = log->tail.size;
  if (length > size) { /* more than the whole ring: its beginning would be cut at once */
    size_t skipped = length - size;
    log->end += skipped;
    bytes += skipped;
    length = size;
    log->tail_length = 0;
    log->tail_first = 0;
  }
  size_t over = log->tail_length + length > size ? log->tail_length + length - size : 0;
  log->tail_first = (log->tail_first + over) % size;
  log->tail_length -= over;
  while (length > 0) {
    size_t index = (log->tail_first + log->tail_length) % size;
    size_t run = size - index < length ? size - index : length;
    store_put(&log->tail, index, is_stderr, bytes, run);
    log->tail_length += run;
    log->end += run;
    bytes += run;
    length -= run;
  }
}

void output_log_append(struct output_log *log, enum channel channel, const uint8_t *bytes,
                       size_t length) {
  bool is_stderr = channel == CHANNEL_STDERR;
  size_t taken = append_head(log, is_stderr, bytes, length);
  if (taken < length) append_tail(log, is_stderr, bytes + taken, length - taken);
}

uint64_t output_log_start(const struct output_log *log) {
  uint64_t start = tail_start(log);
  return start == log->head_length ? 0 : start;
}

size_t output_log_room(struct output_log *log, uint64_t offset, size_t wanted) {
  size_t head_room = 0;
  if (!log->head_closed) {
    head_grow(log, log->head_length + wanted);
    head_room = log->head.size - log->head_length;
    if (head_room >= wanted) return wanted;
  }
  uint64_t start = tail_start(log);
  size_t behind = offset > start ? (size_t)(offset - start) : 0; /* in the ring, but done with */
  if (behind > log->tail_length) behind = log->tail_length;
  size_t needed = log->tail_length - behind;
  tail_grow(log, needed + wanted);
  size_t room = head_room + log->tail.size - needed;
  return room < wanted ? room : wanted;
}

bool output_log_next(const struct output_log *log, uint64_t offset, size_t length_max,
                     struct output_piece *piece) {
  if (offset >= log->end || length_max == 0) return false;
  const struct output_store *store = &log->head;
  uint64_t start = tail_start(log);
  size_t index = 0;
  size_t length = 0;
  piece->offset = offset;
  piece->cut_to = 0;
  if (offset < log->head_length) {
    index = (size_t)offset;
    length = log->head_length - index;
  } else if (offset < start) {
    piece->channel = CHANNEL_CUT;
    piece->bytes = NULL;
    piece->length = 0;
    piece->cut_to = start;
    return true;
  } else {
    store = &log->tail;
    index = (log->tail_first + (size_t)(offset - start)) % log->tail.size;
    length = (size_t)(log->end - offset);
    if (length > log->tail.size - index) length = log->tail.size - index;
  }
  if (length > length_max) length = length_max;
  piece->length = store_run(store, index, length);
  piece->channel = get_channel(store, index) ? CHANNEL_STDERR : CHANNEL_STDOUT;
  piece->bytes = store->bytes + index;
  return true;
}
