/*
 * Timers whose owners are known: what a child gathered for TIMERS, for as long as the kernel's list of due times
 * stays the same. Plain memory, no I/O.
 *
 * N1 What was gathered goes with a list that was read before the child read its own. A timer that came or went
 *    in between makes the next list another one: a due time of nanoseconds is not met twice. (After a thaw it
 *    is, by the same thread.)
 */
#ifndef PERDURE_KNOWN_TIMER_H
#define PERDURE_KNOWN_TIMER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "field.h"
#include "protocol.h"
#include "timer_list.h"

#define DUE_LIST_MAX 512u

/* The kernel's list at one time, by the monotonic clock. Sorted by whoever compares it. */
struct due_list {
  int64_t now_ns;
  int64_t due_ns[DUE_LIST_MAX];
  size_t count;
};

struct known_timer {
  uint64_t pid;
  uint64_t due_ms; /* monotonic */
  char name[TIMER_NAME_BYTES];
};

struct known_timers {
  bool is_complete;   /* `timers` are those of `list` */
  bool is_expected;   /* `list` is what the next that is gathered goes with */
  struct due_list list;
  struct known_timer timers[TIMERS_MAX];
  size_t count;
};

/* Sorts `list`. */
bool known_timers_are_of(const struct known_timers *known, struct due_list *list);
/* Something is about to be gathered, after `list` was read. */
void known_timers_expect(struct known_timers *known, const struct due_list *list);
void known_timers_forget(struct known_timers *known);
/* What was gathered: the fields of a RESPONSE of TIMERS. */
void known_timers_keep(struct known_timers *known, struct bytes fields);
/* The fields of a RESPONSE: those of the known ones, or of none where `list` is empty. */
void known_timers_put(const struct known_timers *known, const struct due_list *list,
                      struct field_writer *fields);
void timer_put(struct field_writer *fields, uint64_t pid, const char *name, uint64_t due_in_ms);

#endif
