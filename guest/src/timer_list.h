/*
 * Armed user timers, from /proc/timer_list and the system calls that threads are blocked in. Pure:
 * text and numbers in, timers out.
 *
 * The kernel's list says when a sleeper is due, but not who it is. A thread's own system call says
 * who waits and for how long at most, but not since when. So the latest timer is given to the
 * thread with the shortest wait that is long enough, then the next: each timer of the workload
 * finds a thread, and timers of others (kernel, hooks) find none as long as the workload's own do.
 */
#ifndef PERDURE_TIMER_LIST_H
#define PERDURE_TIMER_LIST_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define TIMER_NAME_BYTES 16
#define TIMER_UNBOUNDED INT64_MAX

/* A thread blocked in a call that ends by itself: after at most `bound_ns`. */
struct sleeper {
  pid_t pid;
  char name[TIMER_NAME_BYTES];
  int64_t bound_ns;
};

struct user_timer {
  pid_t pid;
  char name[TIMER_NAME_BYTES];
  int64_t due_in_ns;
};

/* Due times of all `hrtimer_wakeup` timers in the text, relative to its own "now" (monotonic). */
size_t timer_list_parse(const char *text, int64_t *due_in_ns, size_t max, int64_t *now_ns);
/* Matches as described; sorts its inputs. The result is soonest first, at most `max`. */
size_t timer_list_match(int64_t *due_in_ns, size_t due_count, struct sleeper *sleepers,
                        size_t sleeper_count, struct user_timer *timers, size_t max);

#endif
