/* See timer_list.h. */
#include "timer_list.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Clock readings differ by this much between the list and a thread's own call. */
#define TOLERANCE_NS INT64_C(5000000)

size_t timer_list_parse(const char *text, int64_t *due_in_ns, size_t max, int64_t *now_ns) {
  size_t count = 0;
  uint64_t now = 0;
  uint64_t offset = 0; /* of the clock base to CLOCK_MONOTONIC */
  uint64_t expires = 0;
  uint64_t number = 0;
  int is_user = 0;
  for (const char *line = text; line != NULL && *line != '\0' && count < max;) {
    size_t length = strcspn(line, "\n");
    char copy[256];
    size_t taken = length < sizeof copy - 1 ? length : sizeof copy - 1;
    memcpy(copy, line, taken);
    copy[taken] = '\0';
    if (sscanf(copy, "now at %" SCNu64, &number) == 1) {
      now = number;
    } else if (sscanf(copy, " .offset: %" SCNu64, &number) == 1) {
      offset = number;
    } else if (sscanf(copy, " # expires at %" SCNu64 "-%" SCNu64, &number, &expires) == 2) {
      if (is_user) due_in_ns[count++] = (int64_t)(expires - offset - now);
      is_user = 0;
    } else if (strncmp(copy, " #", 2) == 0) {
      is_user = strstr(copy, "hrtimer_wakeup") != NULL;
    }
    line += length;
    if (*line == '\n') line++;
  }
  *now_ns = (int64_t)now;
  return count;
}

static int later_first(const void *left, const void *right) {
  int64_t a = *(const int64_t *)left;
  int64_t b = *(const int64_t *)right;
  return a < b ? 1 : a > b ? -1 : 0;
}

static int shorter_first(const void *left, const void *right) {
  const struct sleeper *a = left;
  const struct sleeper *b = right;
  return a->bound_ns < b->bound_ns ? -1 : a->bound_ns > b->bound_ns ? 1 : 0;
}

size_t timer_list_match(int64_t *due_in_ns, size_t due_count, struct sleeper *sleepers,
                        size_t sleeper_count, struct user_timer *timers, size_t max) {
  qsort(due_in_ns, due_count, sizeof *due_in_ns, later_first);
  qsort(sleepers, sleeper_count, sizeof *sleepers, shorter_first);
  size_t matched = 0;
  for (size_t i = 0; i < due_count; i++) {
    struct sleeper *found = NULL;
    for (size_t j = 0; j < sleeper_count && found == NULL; j++) {
      if (sleepers[j].pid != 0 && sleepers[j].bound_ns >= due_in_ns[i] - TOLERANCE_NS) {
        found = &sleepers[j];
      }
    }
    if (found == NULL) continue;
    /* The latest come first: what does not fit pushes those out. */
    if (matched == max) {
      memmove(timers, timers + 1, (max - 1) * sizeof *timers);
      matched--;
    }
    struct user_timer *timer = &timers[matched++];
    timer->pid = found->pid;
    memcpy(timer->name, found->name, sizeof timer->name);
    timer->due_in_ns = due_in_ns[i];
    found->pid = 0; /* taken */
  }
  for (size_t i = 0; i < matched / 2; i++) {
    struct user_timer swap = timers[i];
    timers[i] = timers[matched - 1 - i];
    timers[matched - 1 - i] = swap;
  }
  return matched;
}
