/*
 * TIMERS: who in the workload waits for a time, and until when. Gathered in a child, because to look at a
 * thread may mean to wait for it.
 *
 * It is asked every few seconds of agents that are awake, and mostly nothing is new. So the loop looks at the
 * kernel's list by itself, which is text from a file that is held open: without a user's timer in it there is
 * nothing to gather, and while they are due when they were, they are whose they were (known_timer.h).
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "cgroup.h"
#include "job.h"
#include "known_timer.h"
#include "loop.h"
#include "operation.h"
#include "process.h"
#include "stream.h"
#include "text_file.h"
#include "timer_list.h"

#define DEADLINE_MS 5000u
#define SLEEPERS_MAX 4096u
#define DUE_MAX 4096u
#define TIMER_LIST "/proc/timer_list"
#define LIST_BYTES_MAX (128u << 10)
#define TIMER_LIST_BYTES_MAX (8u << 20)
#define NS_PER_S INT64_C(1000000000)
#define NS_PER_MS INT64_C(1000000)

/* Where a blocking call has its time-out, and in which form. */
enum wait_form { IN_MS, IN_TIMESPEC, IN_TIMEVAL, UNTIL_TIMESPEC };

static const struct {
  long call;
  unsigned argument;
  enum wait_form form;
} WAITS[] = {
    {SYS_nanosleep, 0, IN_TIMESPEC},
    {SYS_ppoll, 2, IN_TIMESPEC},
    {SYS_pselect6, 4, IN_TIMESPEC},
    {SYS_rt_sigtimedwait, 2, IN_TIMESPEC},
    {SYS_semtimedop, 3, IN_TIMESPEC},
    {SYS_io_getevents, 4, IN_TIMESPEC},
    {SYS_epoll_pwait, 3, IN_MS},
    {441 /* epoll_pwait2 */, 3, IN_TIMESPEC},
    {449 /* futex_waitv */, 3, UNTIL_TIMESPEC},
    {SYS_mq_timedreceive, 4, UNTIL_TIMESPEC},
    {SYS_mq_timedsend, 4, UNTIL_TIMESPEC},
#ifdef SYS_poll
    {SYS_poll, 2, IN_MS},
    {SYS_select, 4, IN_TIMEVAL},
    {SYS_epoll_wait, 3, IN_MS},
#endif
};

static struct sleeper sleepers[SLEEPERS_MAX];
static size_t sleeper_count;

/* The wait described by two 64-bit numbers at `address` of the thread; -1 without one. */
static int64_t read_wait(pid_t thread, uint64_t address, enum wait_form form) {
  if (form == UNTIL_TIMESPEC) return address != 0 ? TIMER_UNBOUNDED : -1;
  if (form == IN_MS) {
    int32_t ms = (int32_t)address;
    return ms > 0 ? ms * NS_PER_MS : -1;
  }
  int64_t value[2];
  struct iovec here = {value, sizeof value};
  struct iovec there = {(void *)(uintptr_t)address, sizeof value};
  if (address == 0) return -1;
  if (process_vm_readv(thread, &here, 1, &there, 1, 0) != (ssize_t)sizeof value) {
    return TIMER_UNBOUNDED;
  }
  int64_t unit = form == IN_TIMEVAL ? 1000 : 1;
  if (value[0] < 0 || value[0] > INT64_MAX / NS_PER_S - 1) return TIMER_UNBOUNDED;
  return value[0] * NS_PER_S + value[1] * unit;
}

static int64_t futex_wait(pid_t thread, const uint64_t *arguments) {
  enum { WAIT = 0, LOCK_PI = 6, WAIT_BITSET = 9, WAIT_REQUEUE_PI = 11, COMMAND = 0x7f };
  switch (arguments[1] & COMMAND) {
    case WAIT:
      return read_wait(thread, arguments[3], IN_TIMESPEC);
    case LOCK_PI:
    case WAIT_BITSET:
    case WAIT_REQUEUE_PI:
      return read_wait(thread, arguments[3], UNTIL_TIMESPEC);
    default:
      return -1;
  }
}

/* What the thread waits for at most, or -1 where it is not in a wait with an end. */
static int64_t wait_of(pid_t thread, long call, const uint64_t *arguments) {
  if (call == SYS_restart_syscall) return TIMER_UNBOUNDED; /* went through a thaw */
  if (call == SYS_futex) return futex_wait(thread, arguments);
  if (call == SYS_clock_nanosleep) {
    bool is_absolute = (arguments[1] & TIMER_ABSTIME) != 0;
    return read_wait(thread, arguments[2], is_absolute ? UNTIL_TIMESPEC : IN_TIMESPEC);
  }
  for (size_t i = 0; i < sizeof WAITS / sizeof WAITS[0]; i++) {
    if (WAITS[i].call == call) {
      return read_wait(thread, arguments[WAITS[i].argument], WAITS[i].form);
    }
  }
  return -1;
}

static void look_at_thread(pid_t pid, pid_t thread) {
  char name[96];
  char text[512];
  unsigned long long value[6];
  long call = -1;
  snprintf(name, sizeof name, "/proc/%d/task/%d/syscall", pid, thread);
  if (text_file_read_at(AT_FDCWD, name, text, sizeof text) <= 0) return;
  if (sscanf(text, "%ld %llx %llx %llx %llx %llx %llx", &call, &value[0], &value[1], &value[2],
             &value[3], &value[4], &value[5]) != 7) {
    return; /* "running", or not in a call */
  }
  uint64_t arguments[6];
  for (int i = 0; i < 6; i++) arguments[i] = value[i];
  int64_t bound = wait_of(thread, call, arguments);
  if (bound < 0 || sleeper_count == SLEEPERS_MAX) return;
  struct sleeper *sleeper = &sleepers[sleeper_count++];
  sleeper->pid = pid;
  sleeper->bound_ns = bound;
  snprintf(name, sizeof name, "/proc/%d/task/%d/comm", pid, thread);
  ssize_t length = text_file_read_at(AT_FDCWD, name, sleeper->name, sizeof sleeper->name);
  if (length < 0) sleeper->name[0] = '\0';
  sleeper->name[strcspn(sleeper->name, "\n")] = '\0';
}

static void look_at_process(pid_t pid, void *context) {
  (void)context;
  char name[64];
  snprintf(name, sizeof name, "/proc/%d/task", pid);
  DIR *threads = opendir(name);
  if (threads == NULL) return;
  for (struct dirent *entry; (entry = readdir(threads)) != NULL;) {
    long thread = strtol(entry->d_name, NULL, 10);
    if (thread > 0) look_at_thread(pid, (pid_t)thread);
  }
  closedir(threads);
}

static void gather(const struct request *request, struct answer_pipe *pipe) {
  (void)request;
  static int64_t due[DUE_MAX];
  static struct user_timer timers[TIMERS_MAX];
  static uint8_t buffer[PAYLOAD_MAX - 2];
  if (cgroup_workload() >= 0) {
    cgroup_each_process(cgroup_workload(), look_at_process, NULL);
  } else {
    for (struct process *process = process_next(NULL); process != NULL;
         process = process_next(process)) {
      process_each_of_tree(process, look_at_process, NULL);
    }
  }
  char *text = text_file_read(TIMER_LIST, TIMER_LIST_BYTES_MAX);
  if (text == NULL) {
    child_put_status(pipe, STATUS_NOT_SUPPORTED, "The kernel has no /proc/timer_list");
    return;
  }
  int64_t now = 0;
  size_t due_count = timer_list_parse(text, due, DUE_MAX, &now);
  size_t count = timer_list_match(due, due_count, sleepers, sleeper_count, timers, TIMERS_MAX);
  struct field_writer fields;
  field_writer_open(&fields, buffer, sizeof buffer);
  field_put_number(&fields, TAG_MONOTONIC_NS, (uint64_t)now);
  for (size_t i = 0; i < count; i++) {
    int64_t due_ms = timers[i].due_in_ns / NS_PER_MS;
    timer_put(&fields, (uint64_t)timers[i].pid, timers[i].name, due_ms > 0 ? (uint64_t)due_ms : 0);
  }
  child_put(pipe, STATUS_OK, &fields);
}

/* In the loop. */

static int held = -1;
static struct known_timers known;

void timers_open(void) { held = open(TIMER_LIST, O_RDONLY | O_CLOEXEC); }

/* False where the list cannot be read, or is too long for the loop's turn. */
static bool read_list(struct due_list *list) {
  static char text[LIST_BYTES_MAX];
  size_t length = 0;
  if (held < 0 || lseek(held, 0, SEEK_SET) != 0) return false;
  for (;;) {
    ssize_t got = read(held, text + length, sizeof text - 1 - length);
    if (got < 0) return false;
    if (got == 0) break;
    length += (size_t)got;
    if (length == sizeof text - 1) return false;
  }
  text[length] = '\0';
  list->count = timer_list_parse(text, list->due_ns, DUE_LIST_MAX, &list->now_ns);
  if (list->count == DUE_LIST_MAX) return false;
  for (size_t i = 0; i < list->count; i++) list->due_ns[i] += list->now_ns;
  return true;
}

static void keep(enum status status, struct bytes fields) {
  if (status == STATUS_OK) known_timers_keep(&known, fields);
}

void operation_timers(uint32_t stream, const struct request *request) {
  static struct due_list list;
  bool is_read = read_list(&list);
  if (is_read && (list.count == 0 || known_timers_are_of(&known, &list))) {
    struct field_writer *answer = answer_begin(STATUS_OK);
    known_timers_put(&known, &list, answer);
    answer_send(FRAME_RESPONSE, stream);
    return;
  }
  if (is_read) {
    known_timers_expect(&known, &list);
  } else {
    known_timers_forget(&known);
  }
  struct job_plan plan = {.work = gather,
                          .deadline_ms = request_number(request, TAG_DEADLINE_MS, DEADLINE_MS),
                          .keep_cgroups = true,
                          .after = keep};
  job_run(stream, request, &plan);
}
