/* See known_timer.h. */
#include "known_timer.h"

#include <stdlib.h>
#include <string.h>

#include "request.h"

#define NS_PER_MS UINT64_C(1000000)

static int sooner_first(const void *left, const void *right) {
  int64_t a = *(const int64_t *)left;
  int64_t b = *(const int64_t *)right;
  return a < b ? -1 : a > b ? 1 : 0;
}

static void sort(struct due_list *list) {
  qsort(list->due_ns, list->count, sizeof list->due_ns[0], sooner_first);
}

bool known_timers_are_of(const struct known_timers *known, struct due_list *list) {
  sort(list);
  return known->is_complete && list->count == known->list.count &&
         memcmp(list->due_ns, known->list.due_ns, list->count * sizeof list->due_ns[0]) == 0;
}

void known_timers_expect(struct known_timers *known, const struct due_list *list) {
  known->list = *list;
  sort(&known->list);
  known->is_expected = true;
  known->is_complete = false;
}

void known_timers_forget(struct known_timers *known) {
  known->is_expected = false;
  known->is_complete = false;
}

static bool keep_one(struct known_timers *known, struct bytes value, uint64_t now_ns) {
  static struct request timer;
  const char *why = NULL;
  if (known->count == TIMERS_MAX) return false;
  if (request_decode_fields(value, &timer, &why) != STATUS_OK) return false;
  struct known_timer *one = &known->timers[known->count++];
  one->pid = request_number(&timer, TAG_PID, 0);
  one->due_ms = now_ns / NS_PER_MS + request_number(&timer, TAG_DUE_IN_MS, 0);
  struct bytes name = request_has(&timer, TAG_NAME) ? timer.slice[TAG_NAME] : (struct bytes){0};
  return bytes_to_string(name, one->name, sizeof one->name);
}

void known_timers_keep(struct known_timers *known, struct bytes fields) {
  struct field_reader reader;
  struct field field;
  uint64_t now_ns = 0;
  if (!known->is_expected) return;
  known->count = 0;
  field_reader_open(&reader, fields);
  while (field_next(&reader, &field)) {
    if (field.tag == TAG_MONOTONIC_NS && !field_number(&field, &now_ns)) return;
    if (field.tag == TAG_TIMER && !keep_one(known, field.value, now_ns)) return;
  }
  if (now_ns < (uint64_t)known->list.now_ns) return; /* N1: gathered for a list before */
  known->is_expected = false;
  known->is_complete = true;
}

void timer_put(struct field_writer *fields, uint64_t pid, const char *name, uint64_t due_in_ms) {
  size_t opened = field_open(fields, TAG_TIMER);
  field_put_number(fields, TAG_PID, pid);
  field_put_string(fields, TAG_NAME, name);
  field_put_number(fields, TAG_DUE_IN_MS, due_in_ms);
  field_close(fields, opened);
}

void known_timers_put(const struct known_timers *known, const struct due_list *list,
                      struct field_writer *fields) {
  uint64_t now_ms = (uint64_t)list->now_ns / NS_PER_MS;
  field_put_number(fields, TAG_MONOTONIC_NS, (uint64_t)list->now_ns);
  for (size_t i = 0; list->count > 0 && i < known->count; i++) {
    const struct known_timer *one = &known->timers[i];
    timer_put(fields, one->pid, one->name, one->due_ms > now_ms ? one->due_ms - now_ms : 0);
  }
}
