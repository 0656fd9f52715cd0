/* SIGNAL, PROCESSES and FORGET. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "attach.h"
#include "cgroup.h"
#include "operation.h"
#include "process.h"
#include "stream.h"

#define KILL_DEADLINE_MS 10000u
#define RECHECK_MS 20u
#define SIGNAL_MAX 64u

static void recheck_trees(struct timer *timer);
static struct timer recheck = {.fire = recheck_trees};

static void wait_expired(struct stream *stream) {
  stream_answer(stream, STATUS_DEADLINE_EXCEEDED, "The process tree is not gone yet");
}

static const struct stream_handler WAITER = {.expire = wait_expired};

void signal_waiters_answer(struct process *process) {
  for (struct stream *stream = stream_next(NULL); stream != NULL; stream = stream_next(stream)) {
    if (stream->op != OP_SIGNAL || stream->owner != process) continue;
    stream_answer(stream, STATUS_OK, NULL);
  }
}

/*
 * Without cgroups nobody tells when a tree is empty; with them, a kernel before 6.14 may let a child
 * live that is being forked while its cgroup is killed. So: look again, and kill again.
 */
static void recheck_trees(struct timer *timer) {
  bool waiting = false;
  for (struct stream *stream = stream_next(NULL); stream != NULL; stream = stream_next(stream)) {
    if (stream->op != OP_SIGNAL) continue;
    if (process_tree_is_empty(stream->owner)) {
      stream_answer(stream, STATUS_OK, NULL);
    } else {
      process_kill_tree(stream->owner);
      waiting = true;
    }
  }
  if (waiting) timer_arm(timer, RECHECK_MS);
}

struct delivery {
  int signal;
  unsigned reached;
};

static void signal_one(pid_t pid, void *context) {
  struct delivery *delivery = context;
  if (kill(pid, delivery->signal) == 0) delivery->reached++;
}

static void signal_tree(uint32_t id, const struct request *request, struct process *process,
                        int signal) {
  if (signal != SIGKILL) {
    struct delivery delivery = {signal, 0};
    process_each_of_tree(process, signal_one, &delivery);
    if (delivery.reached > 0 || process->phase != PROCESS_ENDED) {
      answer_status(id, STATUS_OK, NULL);
    } else {
      answer_status(id, STATUS_PROCESS_ENDED, "The process and its tree have ended");
    }
    return;
  }
  if (process->phase == PROCESS_ENDED && process_tree_is_empty(process)) {
    answer_status(id, STATUS_PROCESS_ENDED, "The process and its tree have ended");
    return;
  }
  struct stream *stream = stream_open(id, OP_SIGNAL, &WAITER, process);
  if (stream == NULL) return;
  stream_set_deadline(stream, request_number(request, TAG_DEADLINE_MS, KILL_DEADLINE_MS));
  process_kill_tree(process);
  if (process_tree_is_empty(process)) {
    signal_waiters_answer(process);
  } else if (!recheck.armed) {
    timer_arm(&recheck, RECHECK_MS);
  }
}

void operation_signal(uint32_t id, const struct request *request) {
  struct process *process = process_find(request_number(request, TAG_PROCESS, 0));
  uint64_t signal = request_number(request, TAG_SIGNAL, 0);
  if (process == NULL) {
    answer_status(id, STATUS_PROCESS_NOT_FOUND, "There is no such process");
  } else if (signal == 0 || signal > SIGNAL_MAX) {
    answer_status(id, STATUS_BAD_REQUEST, "signal must be 1 to 64");
  } else if (request_number(request, TAG_TREE, 0) != 0) {
    signal_tree(id, request, process, (int)signal);
  } else if (process->reaped) {
    answer_status(id, STATUS_PROCESS_ENDED, "The process has ended");
  } else if (kill(process->pid, (int)signal) == 0) {
    answer_status(id, STATUS_OK, NULL);
  } else {
    char message[96];
    snprintf(message, sizeof message, "Cannot send the signal: %s", strerror(errno));
    answer_status(id, errno == EINVAL ? STATUS_BAD_REQUEST : STATUS_INTERNAL, message);
  }
}

static void put_entry(struct field_writer *answer, const struct process *process) {
  size_t entry = field_open(answer, TAG_PROCESS_ENTRY);
  field_put_number(answer, TAG_PROCESS, process->id);
  field_put_number(answer, TAG_PID, (uint64_t)process->pid);
  if (answer->capacity - answer->length >= process->argv_length) {
    memcpy(answer->at + answer->length, process->argv, process->argv_length);
    answer->length += process->argv_length;
  } else {
    answer->overflowed = true;
  }
  field_put_number(answer, TAG_STARTED_NS, process->started_ns);
  bool running = process->phase != PROCESS_ENDED;
  field_put_number(answer, TAG_RUNNING, running ? 1 : 0);
  if (!running) process_put_exit(process, answer);
  field_put_number(answer, TAG_LOG_START, output_log_start(&process->log));
  field_put_number(answer, TAG_LOG_END, process->log.end);
  field_put_string(answer, TAG_USER, process->user);
  field_close(answer, entry);
}

void operation_processes(uint32_t id, const struct request *request) {
  uint64_t after = request_number(request, TAG_PROCESS, 0);
  struct field_writer *answer = answer_begin(STATUS_OK);
  for (struct process *process = process_next(NULL); process != NULL;
       process = process_next(process)) {
    if (process->id <= after) continue;
    size_t mark = answer->length;
    put_entry(answer, process);
    if (answer->overflowed) { /* the host asks again from the last one it got */
      field_roll_back(answer, mark);
      break;
    }
  }
  answer_send(FRAME_RESPONSE, id);
}

void operation_forget(uint32_t id, const struct request *request) {
  struct process *process = process_find(request_number(request, TAG_PROCESS, 0));
  if (process == NULL) {
    answer_status(id, STATUS_PROCESS_NOT_FOUND, "There is no such process");
  } else if (process->phase != PROCESS_ENDED) {
    answer_status(id, STATUS_PROCESS_RUNNING, "The process is still running");
  } else {
    process_hide(process);
    answer_status(id, STATUS_OK, NULL);
  }
}
