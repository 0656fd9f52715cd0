/*
 * Waits that a freeze turned into a rest of time.
 *
 * A freeze interrupts every blocked call; at the thaw the kernel begins it again. Most waits are kept as a
 * point in time. select, pselect and ppoll are not: the kernel writes what is left into the caller's memory
 * and waits for that much from the thaw on. After a wake that moved the clock that would be the whole rest
 * again, so what passed while the workload was frozen is taken off here.
 */
#ifndef PERDURE_FROZEN_WAIT_H
#define PERDURE_FROZEN_WAIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where the rest is, and in what unit. */
struct frozen_wait {
  uint64_t address;
  bool is_timeval; /* microseconds, where others have nanoseconds */
};

/* Of a line of /proc/PID/task/TID/syscall; false where the thread is in no such wait. */
bool frozen_wait_parse(const char *text, struct frozen_wait *wait);
/* Takes `passed_ns` off the rest; false where there is nothing to change. */
bool frozen_wait_shorten(int64_t rest[2], bool is_timeval, uint64_t passed_ns);

#endif
