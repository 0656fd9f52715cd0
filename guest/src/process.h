/*
 * Processes: what EXEC started, from fork to forgotten. Reads their output into the log, keeps
 * their stdin, decides when they have ended.
 *
 * Invariants:
 *  P1 An id is used once in the VM's life.
 *  P2 A process counts as ended when its main process was reaped and either both pipes are closed
 *     or OUTPUT_QUIET_MS of unfrozen time passed in which the pipes were read and nothing came.
 *     Then, and only then, the event is sent and readers get their END.
 *  P3 While a reader is attached nothing is appended that would cut what it has not been sent; the
 *     pipes are left alone instead.
 *     The same holds from the start until the first reader came, for at most FIRST_READER_MS: whoever
 *     starts a program to follow it attaches a moment later.
 *  P4 A forgotten process with a tree that goes on stays as a hidden record, its output drained and
 *     dropped, until pipes and cgroup are empty: a daemon must not die of SIGPIPE.
 */
#ifndef PERDURE_PROCESS_H
#define PERDURE_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "byte_queue.h"
#include "loop.h"
#include "output_log.h"
#include "request.h"
#include "stream.h"
#include "user.h"

#define PROCESS_RECORDS_MAX 2048u
#define PROCESS_ARGV_SHOWN 256u /* bytes of argv fields in a list entry */

enum process_phase { PROCESS_STARTING, PROCESS_RUNNING, PROCESS_ENDED };

struct process {
  struct process *next; /* in order of start */
  uint64_t id;
  pid_t pid;
  enum process_phase phase;
  bool hidden;
  bool reaped;
  int wait_status;
  bool timed_out;
  uint64_t started_ns;
  char user[USER_TEXT_MAX];
  uint8_t argv[PROCESS_ARGV_SHOWN];
  size_t argv_length;

  struct output_log log;
  struct source output[2]; /* stdout, stderr; of a terminal only the first */
  bool has_terminal;
  bool held_back;          /* P3: the pipes are not read */
  bool awaits_reader;      /* P3: nobody has attached yet, and the time for it runs */

  struct source input;
  struct byte_queue input_queue;
  bool input_ending;
  bool input_end_typed; /* T2 */
  uint8_t last_typed;
  struct stream *writer;

  struct source start; /* the child's report on exec */
  struct stream *starter;

  struct timer timeout;
  struct timer quiet;
  struct timer first_reader;
  int cgroup; /* folder, -1 without */
  struct source cgroup_events;
};

/* A record with an id and nothing running yet; NULL where there are too many or no memory. */
struct process *process_create(size_t log_bytes);
/* Gives back a record whose program never ran, or lets go of one that is to vanish when it can. */
void process_hide(struct process *process);
/* By id; NULL where it is not there, hidden, or still starting. */
struct process *process_find(uint64_t id);
/* All that are not hidden nor starting, in order of start; NULL first. */
struct process *process_next(struct process *previous);
unsigned processes_running(void);
/* Programs that were started since boot. */
uint64_t processes_started(void);

/* The child runs: takes over its descriptors (-1: none). */
bool process_watch(struct process *process, int out, int err, int in);
void process_began(struct process *process);
/* True where the pid was that of a main process. */
bool process_reaped(pid_t pid, int wait_status);

/* The first reader came. */
void process_met_reader(struct process *process);
/* A reader moved on or left: perhaps the pipes may be read again. */
void process_read_on(struct process *process);
/* exitCode or signal, and timedOut. */
void process_put_exit(const struct process *process, struct field_writer *writer);

/* Every process of the tree. */
void process_each_of_tree(const struct process *process, void (*visit)(pid_t pid, void *context),
                          void *context);
void process_kill_tree(struct process *process);
bool process_tree_is_empty(const struct process *process);

/* SIGHUP to main processes on a terminal: a shell there ignores SIGTERM. */
void processes_hang_up(void);
/* Kills all trees (end of a test, shutdown). */
void processes_kill_all(void);

#endif
