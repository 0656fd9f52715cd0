/* See process.h. */
#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attach.h"
#include "cgroup.h"
#include "link.h"
#include "session.h"

#define READ_CHUNK (64u << 10)
#define LAST_READS 16 /* then it waits for quiet, as for every other */

static struct process *first_process;
static uint64_t last_id;
static unsigned record_count;
static uint64_t started_count;

static void timed_out(struct timer *timer);
static void fell_quiet(struct timer *timer);
static void check_cgroup(struct process *process);

static void nobody_came(struct timer *timer);

struct process *process_create(size_t log_bytes) {
  if (record_count >= PROCESS_RECORDS_MAX) return NULL;
  struct process *process = calloc(1, sizeof *process);
  if (process == NULL) return NULL;
  if (!output_log_open(&process->log, log_bytes)) {
    free(process);
    return NULL;
  }
  process->id = ++last_id;
  process->started_ns = realtime_ns();
  process->cgroup = -1;
  struct source *sources[] = {&process->output[0], &process->output[1], &process->input,
                              &process->start, &process->cgroup_events};
  for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) source_open(sources[i], -1, NULL);
  timer_open(&process->timeout, true, timed_out);
  timer_open(&process->quiet, true, fell_quiet);
  timer_open(&process->first_reader, true, nobody_came);
  process->awaits_reader = true;
  struct process **at = &first_process;
  while (*at != NULL) at = &(*at)->next;
  *at = process;
  record_count++;
  return process;
}

static bool output_is_closed(const struct process *process) {
  return process->output[0].fd < 0 && process->output[1].fd < 0;
}

/* P4: frees a hidden record once nothing of it is left. */
static void release(struct process *process) {
  bool is_alive = process->pid > 0 && !process->reaped;
  if (!process->hidden || is_alive || !output_is_closed(process) || process->cgroup >= 0 ||
      process->start.fd >= 0) {
    return;
  }
  signal_waiters_answer(process);
  timer_disarm(&process->timeout);
  timer_disarm(&process->quiet);
  timer_disarm(&process->first_reader);
  source_close(&process->input);
  byte_queue_close(&process->input_queue);
  output_log_close(&process->log);
  struct process **at = &first_process;
  while (*at != process) at = &(*at)->next;
  *at = process->next;
  record_count--;
  free(process);
}

void process_hide(struct process *process) {
  process->hidden = true;
  readers_dismiss(process);
  process_read_on(process);
  check_cgroup(process);
}

struct process *process_next(struct process *previous) {
  struct process *process = previous != NULL ? previous->next : first_process;
  while (process != NULL && (process->hidden || process->phase == PROCESS_STARTING)) {
    process = process->next;
  }
  return process;
}

struct process *process_find(uint64_t id) {
  struct process *process = process_next(NULL);
  while (process != NULL && process->id != id) process = process_next(process);
  return process;
}

unsigned processes_running(void) {
  unsigned count = 0;
  for (struct process *process = first_process; process != NULL; process = process->next) {
    if (!process->hidden && process->phase != PROCESS_ENDED) count++;
  }
  return count;
}

uint64_t processes_started(void) { return started_count; }

void process_put_exit(const struct process *process, struct field_writer *writer) {
  if (WIFSIGNALED(process->wait_status)) {
    field_put_number(writer, TAG_SIGNAL, (uint64_t)WTERMSIG(process->wait_status));
  } else {
    field_put_number(writer, TAG_EXIT_CODE, (uint64_t)WEXITSTATUS(process->wait_status));
  }
  field_put_number(writer, TAG_TIMED_OUT, process->timed_out ? 1 : 0);
}

static void send_ended(const struct process *process) {
  uint8_t payload[128];
  struct field_writer fields;
  wire_put_u16(payload, EVENT_PROCESS_ENDED);
  field_writer_open(&fields, payload + 2, sizeof payload - 2);
  field_put_number(&fields, TAG_PROCESS, process->id);
  process_put_exit(process, &fields);
  link_send(FRAME_EVENT, 0, (struct bytes){payload, 2 + fields.length});
}

/* Ended ones beyond the limit: the oldest goes, first among those that nobody reads. */
static void forget_oldest(void) {
  unsigned ended = 0;
  struct process *oldest = NULL;
  struct process *oldest_unread = NULL;
  for (struct process *process = process_next(NULL); process != NULL;
       process = process_next(process)) {
    if (process->phase != PROCESS_ENDED) continue;
    ended++;
    if (oldest == NULL) oldest = process;
    if (oldest_unread == NULL && !readers_exist(process)) oldest_unread = process;
  }
  if (ended > PROCESSES_ENDED_MAX) process_hide(oldest_unread != NULL ? oldest_unread : oldest);
}

static void end_if_done(struct process *process, bool is_quiet) {
  if (process->phase != PROCESS_RUNNING || !process->reaped) return;
  if (!is_quiet && !output_is_closed(process)) return;
  process->phase = PROCESS_ENDED;
  timer_disarm(&process->timeout);
  timer_disarm(&process->quiet);
  if (!process->hidden) send_ended(process);
  check_cgroup(process); /* hidden records may be gone after this */
  forget_oldest();
}

static void wait_for_quiet(struct process *process) {
  if (process->phase == PROCESS_RUNNING && process->reaped && !process->held_back) {
    timer_arm(&process->quiet, OUTPUT_QUIET_MS);
  }
}

/* P3: how much may be read now without cutting what a reader has not been sent. */
static size_t readable_room(struct process *process, size_t wanted) {
  uint64_t oldest = 0;
  if (process->hidden) return wanted;
  if (!readers_oldest(process, &oldest) && !process->awaits_reader) return wanted;
  size_t half = (process->log.head_max + process->log.tail_max) / 2;
  uint64_t behind = process->log.end > oldest ? process->log.end - oldest : 0;
  if (behind >= half) return 0;
  if (wanted > half - behind) wanted = half - (size_t)behind;
  return output_log_room(&process->log, oldest, wanted);
}

static void hold_back(struct process *process) {
  process->held_back = true;
  timer_disarm(&process->quiet);
  source_unwatch(&process->output[0]);
  source_unwatch(&process->output[1]);
}

/* One read. True where bytes came. May release a hidden record only through the caller. */
static bool read_output(struct process *process, unsigned index) {
  static uint8_t chunk[READ_CHUNK];
  struct source *source = &process->output[index];
  if (source->fd < 0 || process->held_back) return false;
  size_t room = readable_room(process, sizeof chunk);
  if (room == 0) {
    hold_back(process);
    return false;
  }
  ssize_t got = read(source->fd, chunk, room);
  if (got > 0) {
    enum channel channel = index == 0 ? CHANNEL_STDOUT : CHANNEL_STDERR;
    if (!process->hidden) output_log_append(&process->log, channel, chunk, (size_t)got);
    return true;
  }
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (process->has_terminal && !process->reaped) {
    source_watch(source, EPOLLIN | EPOLLET); /* T1: told again when somebody is there again */
  } else {
    source_close(source);
  }
  return false;
}

static void output_ready(struct process *process, unsigned index) {
  if (read_output(process, index)) {
    wait_for_quiet(process);
  } else if (output_is_closed(process)) {
    if (process->phase == PROCESS_RUNNING && process->reaped) {
      end_if_done(process, false);
    } else {
      release(process);
    }
  }
}

static void stdout_ready(struct source *source, uint32_t events) {
  (void)events;
  output_ready(CONTAINER_OF(source, struct process, output[0]), 0);
}

static void stderr_ready(struct source *source, uint32_t events) {
  (void)events;
  output_ready(CONTAINER_OF(source, struct process, output[1]), 1);
}

/* The time passed, but perhaps only for us (a late turn): what lies in the pipes comes first. */
static void fell_quiet(struct timer *timer) {
  struct process *process = CONTAINER_OF(timer, struct process, quiet);
  bool came = read_output(process, 0);
  came = read_output(process, 1) || came;
  if (process->held_back) return;
  if (came) {
    wait_for_quiet(process);
  } else {
    end_if_done(process, true);
  }
}

void process_read_on(struct process *process) {
  if (!process->held_back) return;
  uint64_t oldest = 0;
  if (!process->hidden && readers_oldest(process, &oldest)) {
    size_t quarter = (process->log.head_max + process->log.tail_max) / 4;
    if (process->log.end > oldest && process->log.end - oldest > quarter) return;
  }
  process->held_back = false;
  source_watch(&process->output[0], EPOLLIN);
  source_watch(&process->output[1], EPOLLIN);
  wait_for_quiet(process);
}

void process_met_reader(struct process *process) {
  process->awaits_reader = false;
  timer_disarm(&process->first_reader);
}

static void nobody_came(struct timer *timer) {
  struct process *process = CONTAINER_OF(timer, struct process, first_reader);
  process->awaits_reader = false;
  process_read_on(process);
}

static void cgroup_changed(struct source *source, uint32_t events) {
  (void)events;
  check_cgroup(CONTAINER_OF(source, struct process, cgroup_events));
}

/* Answers who waits for an empty tree, and removes the cgroup of a process that is over. */
static void check_cgroup(struct process *process) {
  if (process->cgroup >= 0) {
    enum cgroup_answer populated = cgroup_event(process->cgroup_events.fd, "populated");
    /* Removed by someone inside: its events would never be quiet again. */
    if (populated == CGROUP_GONE) source_close(&process->cgroup_events);
    bool is_over = process->phase == PROCESS_ENDED || (process->hidden && process->reaped);
    if (populated != CGROUP_YES) signal_waiters_answer(process);
    if (populated != CGROUP_YES && is_over) {
      source_close(&process->cgroup_events);
      close(process->cgroup);
      process->cgroup = -1;
      cgroup_remove_process(process->id);
    }
  }
  release(process);
}

bool process_watch(struct process *process, int out, int err, int in) {
  source_open(&process->output[0], out, stdout_ready);
  source_open(&process->output[1], err, stderr_ready);
  bool watched = source_watch(&process->output[0], EPOLLIN) &&
                 (err < 0 || source_watch(&process->output[1], EPOLLIN));
  if (in >= 0) {
    source_open(&process->input, in, input_ready);
    watched = source_watch(&process->input, 0) && watched; /* tells when the reader is gone */
  }
  if (process->cgroup >= 0) {
    source_open(&process->cgroup_events, cgroup_open_events(process->cgroup), cgroup_changed);
    watched = source_watch(&process->cgroup_events, EPOLLPRI) && watched;
  }
  return watched;
}

/* Of a terminal nobody tells that the last one inside is gone: its last words are there, and then none. */
static void read_last_words(struct process *process) {
  for (int i = 0; i < LAST_READS && read_output(process, 0); i++) continue;
}

static void end_or_wait(struct process *process) {
  if (output_is_closed(process)) {
    end_if_done(process, false);
  } else {
    wait_for_quiet(process);
  }
}

void process_began(struct process *process) {
  started_count++;
  process->phase = PROCESS_RUNNING;
  if (process->awaits_reader) timer_arm(&process->first_reader, FIRST_READER_MS);
  if (process->reaped) end_or_wait(process);
}

bool process_reaped(pid_t pid, int wait_status) {
  struct process *process = first_process;
  while (process != NULL && (process->reaped || process->pid != pid)) process = process->next;
  if (process == NULL) return false;
  process->reaped = true;
  process->wait_status = wait_status;
  if (process->has_terminal) read_last_words(process);
  if (process->phase == PROCESS_STARTING) {
    check_cgroup(process);
    return true;
  }
  end_or_wait(process);
  return true;
}

static void timed_out(struct timer *timer) {
  struct process *process = CONTAINER_OF(timer, struct process, timeout);
  process->timed_out = true;
  process_kill_tree(process);
}

void process_each_of_tree(const struct process *process, void (*visit)(pid_t pid, void *context),
                          void *context) {
  if (process->cgroup >= 0) {
    cgroup_each_process(process->cgroup, visit, context);
  } else if (process->pid > 0 && cgroup_workload() < 0) {
    session_each_process(process->pid, visit, context);
  }
}

static void kill_one(pid_t pid, void *context) {
  (void)context;
  kill(pid, SIGKILL);
}

void process_kill_tree(struct process *process) {
  /* A child that has not reached its cgroup yet is killed by pid. */
  if (process->pid > 0 && !process->reaped) kill(process->pid, SIGKILL);
  if (process->cgroup >= 0 && cgroup_kill(process->cgroup)) return;
  process_each_of_tree(process, kill_one, NULL);
}

static void note_one(pid_t pid, void *context) {
  (void)pid;
  *(bool *)context = false;
}

bool process_tree_is_empty(const struct process *process) {
  if (process->pid > 0 && !process->reaped && process->cgroup < 0) return false;
  if (process->cgroup >= 0) return cgroup_look(process->cgroup, "populated") != CGROUP_YES;
  bool empty = true;
  process_each_of_tree(process, note_one, &empty);
  return empty;
}

void processes_hang_up(void) {
  for (struct process *process = first_process; process != NULL; process = process->next) {
    if (process->has_terminal && process->pid > 0 && !process->reaped) kill(process->pid, SIGHUP);
  }
}

void processes_kill_all(void) {
  for (struct process *process = first_process; process != NULL; process = process->next) {
    process_kill_tree(process);
  }
}
