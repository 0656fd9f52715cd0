/* See loop.h. */
#include "loop.h"

#include <errno.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S UINT64_C(1000000000)
/* Beyond every real deadline, and far from overflowing a timespec. */
#define AFTER_MS_MAX (UINT64_C(1000) * 3600 * 24 * 365 * 100)

static int epoll_fd = -1;
static struct source clock_source;
static uint64_t programmed_ns;
static bool timers_are_paused;
/* Sentinels of circular lists: armed by due time, paused in no order. */
static struct timer armed = {.next = &armed, .previous = &armed};
static struct timer paused = {.next = &paused, .previous = &paused};

static uint64_t read_clock(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

uint64_t monotonic_ns(void) { return read_clock(CLOCK_MONOTONIC); }
uint64_t realtime_ns(void) { return read_clock(CLOCK_REALTIME); }

static void clock_ready(struct source *source, uint32_t events) {
  (void)events;
  uint64_t expirations = 0;
  if (read(source->fd, &expirations, sizeof expirations) > 0) programmed_ns = 0;
}

bool loop_open(void) {
  epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  if (epoll_fd < 0) return false;
  int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  if (fd < 0) return false;
  source_open(&clock_source, fd, clock_ready);
  return source_watch(&clock_source, EPOLLIN);
}

static void fire_due_timers(void) {
  if (armed.next == &armed) return;
  uint64_t now = monotonic_ns();
  while (armed.next != &armed && armed.next->due_ns <= now) {
    struct timer *timer = armed.next;
    timer_disarm(timer);
    timer->fire(timer);
  }
}

static void program_clock(void) {
  uint64_t due = armed.next != &armed ? armed.next->due_ns : 0;
  if (due == programmed_ns) return;
  struct itimerspec spec = {.it_value = {.tv_sec = (time_t)(due / NS_PER_S),
                                         .tv_nsec = (long)(due % NS_PER_S)}};
  if (timerfd_settime(clock_source.fd, TFD_TIMER_ABSTIME, &spec, NULL) == 0) programmed_ns = due;
}

void loop_turn(bool more_to_do) {
  /* Nothing runs before the wait: what it had to say would lie there until the next event. */
  program_clock();
  struct epoll_event event;
  /* Interrupted waits are ordinary: a thaw or a resume of the VM ends them with EINTR. */
  if (epoll_wait(epoll_fd, &event, 1, more_to_do ? 0 : -1) == 1) {
    struct source *source = event.data.ptr;
    source->ready(source, event.events);
  }
  fire_due_timers();
}

void source_open(struct source *source, int fd, void (*ready)(struct source *, uint32_t)) {
  source->fd = fd;
  source->watched = false;
  source->events = 0;
  source->ready = ready;
}

bool source_watch(struct source *source, uint32_t events) {
  if (source->fd < 0) return false;
  if (source->watched && source->events == events) return true;
  struct epoll_event event = {.events = events, .data = {.ptr = source}};
  int change = source->watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
  if (epoll_ctl(epoll_fd, change, source->fd, &event) != 0) return false;
  source->watched = true;
  source->events = events;
  return true;
}

void source_unwatch(struct source *source) {
  if (!source->watched) return;
  /* Never left to close(): a child may still hold the same description. */
  epoll_ctl(epoll_fd, EPOLL_CTL_DEL, source->fd, NULL);
  source->watched = false;
}

void source_close(struct source *source) {
  if (source->fd < 0) return;
  source_unwatch(source);
  close(source->fd);
  source->fd = -1;
}

static void link_before(struct timer *timer, struct timer *next) {
  timer->next = next;
  timer->previous = next->previous;
  next->previous->next = timer;
  next->previous = timer;
}

static void insert_armed(struct timer *timer) {
  struct timer *next = armed.next;
  while (next != &armed && next->due_ns <= timer->due_ns) next = next->next;
  link_before(timer, next);
}

void timer_open(struct timer *timer, bool pausable, void (*fire)(struct timer *)) {
  timer->armed = false;
  timer->pausable = pausable;
  timer->fire = fire;
}

void timer_arm(struct timer *timer, uint64_t after_ms) {
  timer_disarm(timer);
  if (after_ms > AFTER_MS_MAX) after_ms = AFTER_MS_MAX;
  timer->armed = true;
  if (timer->pausable && timers_are_paused) {
    timer->due_ns = after_ms * NS_PER_MS;
    link_before(timer, &paused);
  } else {
    timer->due_ns = monotonic_ns() + after_ms * NS_PER_MS;
    insert_armed(timer);
  }
}

void timer_disarm(struct timer *timer) {
  if (!timer->armed) return;
  timer->armed = false;
  timer->previous->next = timer->next;
  timer->next->previous = timer->previous;
}

void timers_pause(void) {
  if (timers_are_paused) return;
  timers_are_paused = true;
  uint64_t now = monotonic_ns();
  for (struct timer *timer = armed.next, *next; timer != &armed; timer = next) {
    next = timer->next;
    if (!timer->pausable) continue;
    timer->previous->next = timer->next;
    timer->next->previous = timer->previous;
    timer->due_ns = timer->due_ns > now ? timer->due_ns - now : 0;
    link_before(timer, &paused);
  }
}

void timers_resume(void) {
  if (!timers_are_paused) return;
  timers_are_paused = false;
  uint64_t now = monotonic_ns();
  for (struct timer *timer = paused.next, *next; timer != &paused; timer = next) {
    next = timer->next;
    timer->due_ns += now;
    insert_armed(timer);
  }
  paused.next = &paused;
  paused.previous = &paused;
}
