/* See freezer.h. */
#include "freezer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cgroup.h"
#include "loop.h"
#include "operation.h"
#include "stream.h"

#define DEADLINE_MS 10000u
/* Notices of cgroup.events are rate limited by the kernel, so the first looks are our own. */
#define FIRST_LOOK_MS 1u
#define LAST_LOOK_MS 32u

/* All are held open: a thaw after a wake should cost few system calls. */
static struct source events = {.fd = -1};
static int look_file = -1; /* as `events`; to read it takes no notice */
static int freeze_file = -1;
static struct timer look;
static uint64_t next_look_ms;
static bool is_wanted;        /* frozen, as far as the host asked */
static uint64_t frozen_at_ns; /* 0: not frozen, or not seen yet */

bool freezer_is_frozen(void) {
  return look_file >= 0 && cgroup_event(look_file, "frozen") == CGROUP_YES;
}

static struct stream *next_waiter(struct stream *previous, enum operation op) {
  struct stream *stream = stream_next(previous);
  while (stream != NULL && stream->op != op) stream = stream_next(stream);
  return stream;
}

static void answer_all(enum operation op, enum status status, const char *message) {
  for (struct stream *stream = next_waiter(NULL, op); stream != NULL;
       stream = next_waiter(stream, op)) {
    stream_answer(stream, status, message);
  }
}

static void look_now(void) {
  enum cgroup_answer frozen = cgroup_event(events.fd, "frozen");
  if (frozen == CGROUP_GONE) source_unwatch(&events); /* removed by someone inside */
  if (frozen == CGROUP_YES) {
    if (frozen_at_ns == 0 && is_wanted) frozen_at_ns = monotonic_ns();
    answer_all(OP_FREEZE, STATUS_OK, NULL);
  }
  if (frozen == CGROUP_NO) answer_all(OP_THAW, STATUS_OK, NULL);
  bool waiting = next_waiter(NULL, OP_FREEZE) != NULL || next_waiter(NULL, OP_THAW) != NULL;
  if (!waiting) timer_disarm(&look);
}

static void look_again(struct timer *timer) {
  next_look_ms = next_look_ms < LAST_LOOK_MS ? next_look_ms * 2 : LAST_LOOK_MS;
  timer_arm(timer, next_look_ms);
  look_now();
}

static void events_ready(struct source *source, uint32_t mask) {
  (void)source;
  (void)mask;
  look_now();
}

bool freezer_open(void) {
  timer_open(&look, false, look_again);
  if (cgroup_workload() < 0) return false;
  source_open(&events, cgroup_open_events(cgroup_workload()), events_ready);
  look_file = cgroup_open_events(cgroup_workload());
  freeze_file = cgroup_open_freeze(cgroup_workload());
  return look_file >= 0 && freeze_file >= 0 && source_watch(&events, EPOLLPRI);
}

uint64_t freezer_take_passed_ns(void) {
  uint64_t now_ns = monotonic_ns();
  uint64_t passed_ns = frozen_at_ns == 0 || now_ns < frozen_at_ns ? 0 : now_ns - frozen_at_ns;
  if (frozen_at_ns != 0) frozen_at_ns = now_ns;
  return passed_ns;
}

static void freeze_expired(struct stream *stream) {
  stream_answer(stream, STATUS_DEADLINE_EXCEEDED,
                "The workload is not frozen yet; the request stays in place until a thaw");
}

static void thaw_expired(struct stream *stream) {
  stream_answer(stream, STATUS_DEADLINE_EXCEEDED, "The workload is not thawed yet");
}

static const struct stream_handler FREEZING = {.expire = freeze_expired};
static const struct stream_handler THAWING = {.expire = thaw_expired};

static void change(uint32_t id, const struct request *request, bool freeze) {
  if (events.fd < 0) {
    answer_status(id, STATUS_NOT_SUPPORTED, "There is no cgroup to freeze");
    return;
  }
  if (!cgroup_set_frozen(freeze_file, freeze)) {
    char message[96];
    snprintf(message, sizeof message, "Cannot write cgroup.freeze: %s", strerror(errno));
    answer_status(id, STATUS_INTERNAL, message);
    return;
  }
  is_wanted = freeze;
  if (freeze) {
    timers_pause();
    answer_all(OP_THAW, STATUS_CANCELLED, "A freeze came after it");
  } else {
    frozen_at_ns = 0;
    timers_resume();
    answer_all(OP_FREEZE, STATUS_CANCELLED, "A thaw came after it");
  }
  struct stream *stream = stream_open(id, freeze ? OP_FREEZE : OP_THAW,
                                      freeze ? &FREEZING : &THAWING, NULL);
  if (stream == NULL) return;
  stream_set_deadline(stream, request_number(request, TAG_DEADLINE_MS, DEADLINE_MS));
  next_look_ms = FIRST_LOOK_MS;
  timer_arm(&look, next_look_ms);
  look_now();
}

void operation_freeze(uint32_t id, const struct request *request) { change(id, request, true); }
void operation_thaw(uint32_t id, const struct request *request) { change(id, request, false); }

void freezer_thaw(void) {
  if (events.fd < 0 || !cgroup_set_frozen(freeze_file, false)) return;
  is_wanted = false;
  frozen_at_ns = 0;
  timers_resume();
}
