/*
 * The event loop: sources (descriptors) and timers, one thread.
 *
 * Invariants:
 *  E1 One event is taken per turn, so a handler may close and free any source, its own included.
 *  E2 Nothing wakes the loop without a reason: deadlines sit in one timerfd that is armed for the
 *     earliest of them and disarmed without any (an idle VM must stay idle, and the agent must not
 *     show up in /proc/timer_list as somebody who waits).
 *  E3 Pausable timers count only time in which the workload is not frozen.
 */
#ifndef PERDURE_LOOP_H
#define PERDURE_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>

#define CONTAINER_OF(pointer, type, member) \
  ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

struct source {
  int fd; /* -1: closed */
  bool watched;
  uint32_t events;
  void (*ready)(struct source *source, uint32_t events);
};

struct timer {
  struct timer *next;
  struct timer *previous;
  bool armed;
  bool pausable;
  uint64_t due_ns; /* while paused: what is left */
  void (*fire)(struct timer *timer);
};

bool loop_open(void);
/* Waits for one event, or only looks where there is `more_to_do`. */
void loop_turn(bool more_to_do);

void source_open(struct source *source, int fd, void (*ready)(struct source *, uint32_t));
/* Starts to watch, or changes what for. False where the kernel refuses. */
bool source_watch(struct source *source, uint32_t events);
/* No event at all until it is watched again: EPOLLHUP comes even when it was not asked for. */
void source_unwatch(struct source *source);
void source_close(struct source *source);

void timer_open(struct timer *timer, bool pausable, void (*fire)(struct timer *));
void timer_arm(struct timer *timer, uint64_t after_ms);
void timer_disarm(struct timer *timer);
void timers_pause(void);
void timers_resume(void);

uint64_t monotonic_ns(void);
uint64_t realtime_ns(void);

#endif
