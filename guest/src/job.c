/* See job.h. */
#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cgroup.h"

static struct job *jobs;
static unsigned job_count;

static void free_if_done(struct job *job) {
  if (job->pid != 0 || job->result.fd >= 0) return;
  for (struct job **at = &jobs; *at != NULL; at = &(*at)->next) {
    if (*at != job) continue;
    *at = job->next;
    break;
  }
  job_count--;
  free(job->record);
  free(job);
}

/* Takes what is there of the record; true where it is whole. */
static bool read_record(struct job *job, bool *closed) {
  for (;;) {
    uint8_t *at = job->header + job->have;
    size_t want = sizeof job->header - job->have;
    if (job->record != NULL) {
      at = job->record + job->have;
      want = job->record_length - job->have;
    }
    ssize_t got = want > 0 ? read(job->result.fd, at, want) : 0;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return false;
    if (got <= 0) {
      *closed = true;
      return false;
    }
    job->have += (size_t)got;
    if (job->record != NULL && job->have == job->record_length) return true;
    if (job->record != NULL || job->have < sizeof job->header) continue;
    job->record_length = wire_get_u32(job->header);
    job->have = 0;
    if (job->record_length < 2 || job->record_length > PAYLOAD_MAX ||
        (job->record = malloc(job->record_length)) == NULL) {
      *closed = true;
      return false;
    }
  }
}

static void result_ready(struct source *source, uint32_t events) {
  (void)events;
  struct job *job = CONTAINER_OF(source, struct job, result);
  bool closed = false;
  if (read_record(job, &closed)) {
    uint8_t *record = job->record;
    struct bytes payload = {record, job->record_length};
    job->record = NULL;
    job->have = 0;
    if (job->on_record != NULL) job->on_record(job, payload);
    free(record);
  } else if (closed) {
    source_close(&job->result);
    if (job->on_end != NULL) job->on_end(job);
    free_if_done(job);
  }
}

static void close_others(const int *keep, size_t keep_count) {
  unsigned from = 3;
  for (;;) {
    unsigned next = ~0u; /* the smallest descriptor to keep from `from` on */
    for (size_t i = 0; i < keep_count; i++) {
      if (keep[i] >= (int)from && (unsigned)keep[i] < next) next = (unsigned)keep[i];
    }
    if (next > from) syscall(SYS_close_range, from, next - (next == ~0u ? 0 : 1), 0);
    if (next == ~0u) return;
    from = next + 1;
  }
}

void child_prepare(const int *keep, size_t keep_count) {
  close_others(keep, keep_count);
  /* The kernel's own call: libc keeps some signals to itself, and those may be ignored as well. */
  const uint64_t standard[4] = {0};
  for (int signal = 1; signal <= 64; signal++) {
    syscall(SYS_rt_sigaction, signal, standard, NULL, sizeof(uint64_t));
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
}

bool job_fork(struct job **out, struct answer_pipe *pipe_out, const int *keep, size_t keep_count) {
  *out = NULL;
  if (job_count >= JOBS_MAX || keep_count > 7) return false;
  struct job *job = calloc(1, sizeof *job);
  int ends[2];
  if (job == NULL || pipe2(ends, O_CLOEXEC) != 0) {
    free(job);
    return false;
  }
  pid_t pid = fork();
  if (pid == 0) {
    int kept[8];
    for (size_t i = 0; i < keep_count; i++) kept[i] = keep[i];
    kept[keep_count] = ends[1];
    child_prepare(kept, keep_count + 1);
    signal(SIGPIPE, SIG_IGN); /* a parent that lost interest is an error to write, not an end */
    pipe_out->fd = ends[1];
    return true;
  }
  close(ends[1]);
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  source_open(&job->result, ends[0], result_ready);
  if (pid < 0 || !source_watch(&job->result, EPOLLIN)) {
    if (pid > 0) kill(pid, SIGKILL); /* reaped as an orphan */
    source_close(&job->result);
    free(job);
    return false;
  }
  job->pid = pid;
  job->next = jobs;
  jobs = job;
  job_count++;
  *out = job;
  return false;
}

void job_forget(struct job *job) {
  job->stream = NULL;
  job->on_record = NULL;
  job->on_end = NULL;
}

void job_kill(struct job *job) {
  job_forget(job);
  if (job->pid != 0) kill(job->pid, SIGKILL);
  source_close(&job->result);
  free_if_done(job);
}

void jobs_kill_all(void) {
  for (struct job *job = jobs; job != NULL; job = job->next) {
    if (job->pid != 0) kill(job->pid, SIGKILL);
  }
}

static void answer_call(struct job *job, int wait_status);

bool job_reaped(pid_t pid, int wait_status) {
  for (struct job *job = jobs; job != NULL; job = job->next) {
    if (job->pid != pid) continue;
    job->pid = 0;
    if (job->stream != NULL && job->action != NULL) answer_call(job, wait_status);
    free_if_done(job);
    return true;
  }
  return false;
}

/* The ordinary case: one record, one answer. */

static void answer_with_record(struct job *job, struct bytes payload) {
  struct stream *stream = job->stream;
  job->on_record = NULL;
  job->on_end = NULL;
  if (job->after != NULL) {
    struct bytes fields = {payload.at + 2, payload.length - 2};
    job->after((enum status)wire_get_u16(payload.at), fields);
  }
  if (stream == NULL) return;
  job->stream = NULL;
  uint32_t id = stream->id;
  stream_close(stream);
  answer_send_payload(FRAME_RESPONSE, id, payload);
}

static void answer_without_record(struct job *job) {
  struct stream *stream = job->stream;
  job->stream = NULL;
  if (job->after != NULL) job->after(STATUS_INTERNAL, (struct bytes){NULL, 0});
  if (stream != NULL) stream_answer(stream, STATUS_INTERNAL, "The work ended without a result");
}

static void job_expired(struct stream *stream) {
  struct job *job = stream->owner;
  job_kill(job);
  stream_answer(stream, STATUS_DEADLINE_EXCEEDED, "The work was not done in time");
}

static void job_stream_closed(struct stream *stream) {
  struct job *job = stream->owner;
  job->stream = NULL;
  if (!job->keep_running) job_kill(job);
}

static const struct stream_handler JOB_STREAM = {.expire = job_expired,
                                                 .close = job_stream_closed};

bool job_run(uint32_t id, const struct request *request, const struct job_plan *plan) {
  struct stream *stream = NULL;
  if (id != 0) {
    stream = stream_open(id, (enum operation)request->op, &JOB_STREAM, NULL);
    if (stream == NULL) return false;
  }
  struct job *job = NULL;
  struct answer_pipe pipe;
  int cgroups[] = {cgroup_workload(), cgroup_hooks()};
  if (job_fork(&job, &pipe, cgroups, plan->keep_cgroups ? 2 : 0)) {
    plan->work(request, &pipe);
    _exit(0);
  }
  if (job == NULL) {
    if (stream != NULL) stream_answer(stream, STATUS_TOO_MANY, "Cannot start another child");
    return false;
  }
  if (stream != NULL) stream->owner = job;
  job->stream = stream;
  job->keep_running = plan->keep_running;
  job->after = plan->after;
  job->on_record = answer_with_record;
  job->on_end = answer_without_record;
  if (plan->deadline_ms > 0 && stream != NULL) stream_set_deadline(stream, plan->deadline_ms);
  return true;
}

/* One system call. */

#define CALL_STACK_BYTES 4096u /* every signal is blocked, so no handler runs on it */

struct call_job {
  struct job job;
  int (*call)(void);
  _Alignas(16) uint8_t stack[CALL_STACK_BYTES];
};

/* On a stack of its own, in memory that is the agent's too: no sanitizer, no errno. */
#define BESIDE __attribute__((noinline, no_sanitize("address", "undefined")))

BESIDE long child_call(long number, long first, long second, long third, long fourth) {
  register long in_r10 __asm__("r10") = fourth;
  long result;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(first), "S"(second), "d"(third), "r"(in_r10)
                   : "rcx", "r11", "memory");
  return result;
}

BESIDE static int run_call(void *context) {
  const struct call_job *job = context;
  child_call(SYS_exit_group, job->call(), 0, 0, 0);
  return 0;
}

static void answer_call(struct job *job, int wait_status) {
  struct stream *stream = job->stream;
  job->stream = NULL;
  int problem = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : EINTR;
  char message[128];
  if (problem != 0) {
    snprintf(message, sizeof message, "Cannot %s: %s", job->action, strerror(problem));
  }
  stream_answer(stream, problem == 0 ? STATUS_OK : STATUS_INTERNAL, problem == 0 ? NULL : message);
}

void job_call(uint32_t id, const struct request *request, uint64_t deadline_ms, int (*call)(void),
              const char *action) {
  struct stream *stream = stream_open(id, (enum operation)request->op, &JOB_STREAM, NULL);
  if (stream == NULL) return;
  struct call_job *job = job_count < JOBS_MAX ? calloc(1, sizeof *job) : NULL;
  if (job != NULL) {
    job->call = call;
    job->job.pid = clone(run_call, job->stack + sizeof job->stack,
                         CLONE_VM | CLONE_FILES | CLONE_FS | CLONE_SIGHAND | SIGCHLD, job);
  }
  if (job == NULL || job->job.pid < 0) {
    free(job);
    stream_answer(stream, STATUS_TOO_MANY, "Cannot start another child");
    return;
  }
  source_open(&job->job.result, -1, NULL);
  job->job.action = action;
  job->job.stream = stream;
  job->job.next = jobs;
  jobs = &job->job;
  job_count++;
  stream->owner = &job->job;
  stream_set_deadline(stream, deadline_ms);
}

/* In the child. */

/* One write where it can be: up to PIPE_BUF bytes arrive whole. */
static void put_all(int fd, struct iovec *parts, int count) {
  while (count > 0) {
    ssize_t put = writev(fd, parts, count);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) _exit(1); /* nobody listens any more */
    size_t left = (size_t)put;
    while (count > 0 && left >= parts->iov_len) {
      left -= parts->iov_len;
      parts++;
      count--;
    }
    if (count == 0) return;
    parts->iov_base = (char *)parts->iov_base + left;
    parts->iov_len -= left;
  }
}

void child_put(struct answer_pipe *pipe, enum status status, const struct field_writer *fields) {
  uint8_t header[6];
  size_t length = fields != NULL ? fields->length : 0;
  if (fields != NULL && fields->overflowed) {
    child_put_status(pipe, STATUS_INTERNAL, "The answer does not fit into a frame");
    return;
  }
  wire_put_u32(header, (uint32_t)(2 + length));
  wire_put_u16(header + 4, (uint16_t)status);
  struct iovec parts[] = {{header, sizeof header}, {fields != NULL ? fields->at : NULL, length}};
  put_all(pipe->fd, parts, 2);
}

void child_put_status(struct answer_pipe *pipe, enum status status, const char *message) {
  static uint8_t buffer[3 * PATH_BYTES_MAX];
  struct field_writer fields;
  field_writer_open(&fields, buffer, sizeof buffer);
  if (message != NULL) field_put_string(&fields, TAG_MESSAGE, message);
  if (fields.overflowed) field_roll_back(&fields, 0);
  child_put(pipe, status, &fields);
}

void child_put_errno(struct answer_pipe *pipe, const char *action, int problem) {
  char message[256];
  snprintf(message, sizeof message, "Cannot %s: %s", action, strerror(problem));
  enum status status = problem == ENOSPC ? STATUS_DISK_FULL : STATUS_INTERNAL;
  child_put_status(pipe, status, message);
}
