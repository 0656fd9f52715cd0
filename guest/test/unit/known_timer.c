/* Timers that are told again while the kernel's list stays the same. */
#include "../../src/known_timer.h"

#include <string.h>

#include "../../src/request.h"
#include "../check.h"
#include "unit.h"

static struct known_timers known;

static struct due_list list_of(int64_t now_ns, int64_t first, int64_t second) {
  struct due_list list = {.now_ns = now_ns, .due_ns = {first, second}, .count = 2};
  return list;
}

/* As a child answers that looked at `now_ns` and found one timer. */
static void gathered(uint64_t now_ns, const char *name) {
  uint8_t buffer[256];
  struct field_writer fields;
  field_writer_open(&fields, buffer, sizeof buffer);
  field_put_number(&fields, TAG_MONOTONIC_NS, now_ns);
  timer_put(&fields, 7, name, 5000);
  known_timers_keep(&known, (struct bytes){buffer, fields.length});
}

/* The time left of the one timer that is told, or -1 where none is. */
static int64_t told(const struct due_list *list) {
  uint8_t buffer[256];
  struct field_writer fields;
  struct field_reader reader;
  struct field field;
  field_writer_open(&fields, buffer, sizeof buffer);
  known_timers_put(&known, list, &fields);
  field_reader_open(&reader, (struct bytes){buffer, fields.length});
  while (field_next(&reader, &field)) {
    static struct request timer;
    const char *why = NULL;
    if (field.tag != TAG_TIMER) continue;
    CHECK(request_decode_fields(field.value, &timer, &why) == STATUS_OK);
    CHECK(timer.number[TAG_PID] == 7 && bytes_equal(timer.slice[TAG_NAME], "sleep"));
    return (int64_t)timer.number[TAG_DUE_IN_MS];
  }
  return -1;
}

void unit_known_timers(void) {
  const int64_t second = 1000000000;
  struct due_list list = list_of(second, 9 * second, 6 * second);
  CHECK(!known_timers_are_of(&known, &list));
  known_timers_expect(&known, &list);
  CHECK(!known_timers_are_of(&known, &list));
  gathered((uint64_t)second, "sleep");
  CHECK(known_timers_are_of(&known, &list) && told(&list) == 5000);

  /* Later the same, in another order; less is left of it, and never less than nothing. */
  struct due_list later = list_of(3 * second, 6 * second, 9 * second);
  CHECK(known_timers_are_of(&known, &later) && told(&later) == 3000);
  struct due_list last = list_of(60 * second, 6 * second, 9 * second);
  CHECK(known_timers_are_of(&known, &last) && told(&last) == 0);

  /* An empty list has no timers, and takes nothing away: they are back after a thaw. */
  struct due_list empty = {.now_ns = 4 * second, .count = 0};
  CHECK(told(&empty) == -1 && !known_timers_are_of(&known, &empty));
  CHECK(known_timers_are_of(&known, &later));

  /* Another timer, or one fewer: nothing is known. */
  struct due_list other = list_of(4 * second, 6 * second, 9 * second + 1);
  CHECK(!known_timers_are_of(&known, &other));
  later.count = 1;
  CHECK(!known_timers_are_of(&known, &later));

  /* N1: what was gathered before the list was read does not go with it, what comes after does. */
  known_timers_expect(&known, &other);
  gathered((uint64_t)(4 * second - 1), "sleep");
  CHECK(!known_timers_are_of(&known, &other));
  gathered((uint64_t)(4 * second), "sleep");
  CHECK(known_timers_are_of(&known, &other));
  /* A second answer to the same list is of another one. */
  gathered((uint64_t)(5 * second), "wrong");
  CHECK(told(&other) == 5000);

  known_timers_expect(&known, &other);
  gathered((uint64_t)(5 * second), "a name that is longer than a name");
  CHECK(!known_timers_are_of(&known, &other));
  known_timers_forget(&known);
  gathered((uint64_t)(5 * second), "sleep");
  CHECK(!known_timers_are_of(&known, &other));
}
