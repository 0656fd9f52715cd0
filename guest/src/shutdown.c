/*
 * SHUTDOWN: SIGTERM to the workload (and SIGHUP on terminals), SIGKILL after the deadline, flush and remount read-only in a
 * child, answer, power off. Once begun it goes on whether or not the host still listens.
 */
#include "shutdown.h"

#include <signal.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <unistd.h>

#include "agent.h"
#include "cgroup.h"
#include "freezer.h"
#include "job.h"
#include "link.h"
#include "loop.h"
#include "operation.h"
#include "process.h"

#define DEADLINE_MS 10000u
#define KILL_MS 2000u
#define FLUSH_MS 60000u
#define LOOK_MS 20u
#define LAST_WORDS_MS 500u

static struct timer look;
static struct timer last_words;
static uint64_t kill_at_ns;
static uint64_t give_up_at_ns;
static struct stream *waiter;
static struct request flush_request;

_Noreturn void power_off(void) {
  reboot(RB_POWER_OFF);
  for (;;) pause();
}

static void power_off_now(struct timer *timer) {
  (void)timer;
  power_off();
}

static void wait_until_said(struct timer *timer) {
  (void)timer;
  static unsigned looks;
  if (link_is_flushed() || ++looks > LAST_WORDS_MS / LOOK_MS) power_off();
  timer_arm(&last_words, LOOK_MS);
}

static void flush_and_seal(const struct request *request, struct answer_pipe *pipe) {
  (void)request;
  sync();
  /* A file still open for writing refuses this; after the sync that costs a journal replay. */
  mount(NULL, "/", NULL, MS_REMOUNT | MS_RDONLY, NULL);
  sync();
  child_put_status(pipe, STATUS_OK, NULL);
}

static void sealed(enum status status, struct bytes fields) {
  (void)status;
  (void)fields;
  timer_disarm(&last_words);
  timer_open(&last_words, false, wait_until_said);
  timer_arm(&last_words, LOOK_MS);
}

static void count_one(pid_t pid, void *context) {
  (void)pid;
  ++*(unsigned *)context;
}

static void look_again(struct timer *timer) {
  unsigned left = 0;
  cgroup_each_process(cgroup_workload(), count_one, &left);
  uint64_t now = monotonic_ns();
  if (left > 0 && now < give_up_at_ns) {
    if (now >= kill_at_ns) cgroup_kill(cgroup_workload());
    timer_arm(timer, LOOK_MS);
    return;
  }
  if (cgroup_hooks() >= 0) cgroup_kill(cgroup_hooks());
  jobs_kill_all(); /* a file still open for writing would refuse the remount */
  uint32_t id = waiter != NULL ? waiter->id : 0;
  if (waiter != NULL) stream_close(waiter);
  waiter = NULL;
  /* Should the disk hang, the machine still goes. */
  timer_open(&last_words, false, power_off_now);
  timer_arm(&last_words, FLUSH_MS);
  struct job_plan plan = {.work = flush_and_seal, .keep_running = true, .after = sealed};
  job_run(id, &flush_request, &plan);
}

static void waiter_closed(struct stream *stream) {
  (void)stream;
  waiter = NULL;
}

static const struct stream_handler WAITER = {.close = waiter_closed};

static void terminate_one(pid_t pid, void *context) {
  (void)context;
  kill(pid, SIGTERM);
}

void operation_shutdown(uint32_t id, const struct request *request) {
  if (agent.is_test || cgroup_workload() < 0) {
    answer_status(id, STATUS_NOT_SUPPORTED, "A test host is not shut down");
    return;
  }
  if (agent.shutting_down) {
    answer_status(id, STATUS_CANCELLED, "The machine is shutting down already");
    return;
  }
  waiter = stream_open(id, OP_SHUTDOWN, &WAITER, NULL);
  if (waiter == NULL) return;
  agent.shutting_down = true;
  flush_request.op = OP_SHUTDOWN;
  uint64_t deadline_ms = request_number(request, TAG_DEADLINE_MS, DEADLINE_MS);
  if (deadline_ms > 3600000) deadline_ms = 3600000;
  kill_at_ns = monotonic_ns() + deadline_ms * UINT64_C(1000000);
  give_up_at_ns = kill_at_ns + KILL_MS * UINT64_C(1000000);
  freezer_thaw(); /* a frozen process cannot act on SIGTERM */
  cgroup_each_process(cgroup_workload(), terminate_one, NULL);
  processes_hang_up();
  timer_open(&look, false, look_again);
  timer_arm(&look, LOOK_MS);
}
