/*
 * Jobs: forked children that do what may block (file systems, programs, drivers) and send back what
 * is to be answered, so that the loop never waits.
 *
 * A child writes records to a pipe: `length u32`, then a payload exactly as a RESPONSE or END has
 * it (status, fields). Most jobs have one.
 *
 * Invariants:
 *  J1 A stream of a job is answered once: by its record, at its deadline, or because the child is
 *     gone without one.
 *  J2 A job outlives its stream where the child cannot be ended at once (uninterruptible I/O);
 *     JOBS_MAX bounds how many children there are in all.
 *  J3 A child keeps none of the agent's descriptors open but those it is given: otherwise pipes of
 *     processes would seem open for as long as the job takes. (One that shares them holds none.)
 */
#ifndef PERDURE_JOB_H
#define PERDURE_JOB_H

#include <stdbool.h>
#include <sys/types.h>

#include "field.h"
#include "loop.h"
#include "request.h"
#include "stream.h"

#define JOBS_MAX 320

struct job {
  struct job *next;
  pid_t pid; /* 0: reaped */
  struct source result;
  uint8_t header[4];
  uint8_t *record;
  size_t record_length;
  size_t have;
  struct stream *stream; /* NULL: nobody waits any more */
  bool keep_running;     /* finish even where nobody waits */
  void (*after)(enum status status, struct bytes fields);
  void *owner;
  void (*on_record)(struct job *job, struct bytes payload);
  /* The pipe is closed: no further record. */
  void (*on_end)(struct job *job);
  const char *action; /* of a `job_call` */
};

/* Where a child sends its records. */
struct answer_pipe {
  int fd;
};

/*
 * Forks. In the child returns true with `pipe` set, and everything closed except `keep`; the child
 * must end with `_exit`. In the parent returns false with `*job` set, or NULL where it failed.
 */
bool job_fork(struct job **job, struct answer_pipe *pipe, const int *keep, size_t keep_count);
/* Kills the child; nothing of it is heard any more. */
void job_kill(struct job *job);
/* Lets the child go on, unheard. */
void job_forget(struct job *job);
void jobs_kill_all(void);
/* PID was reaped: true where it was a job's. */
bool job_reaped(pid_t pid, int wait_status);

/*
 * The ordinary case: run `work` in a child and answer `stream` (0: nobody) with its one record.
 * With a `deadline_ms` of 0 there is none. `after` is called in the parent with the answer's
 * status and fields. False where no child was started; then the stream was answered.
 */
struct job_plan {
  void (*work)(const struct request *request, struct answer_pipe *pipe);
  uint64_t deadline_ms;
  bool keep_running;
  bool keep_cgroups; /* the child looks at the cgroups of workload and hooks */
  void (*after)(enum status status, struct bytes fields);
};
bool job_run(uint32_t stream, const struct request *request, const struct job_plan *plan);

/*
 * One system call that may block, in a child that shares the agent's memory and descriptors: starting
 * and ending it costs little, and it is answered when the child is gone, so that nothing of it is left
 * to be done after a capture that follows. `call` runs beside the agent: it makes system calls by
 * `child_call` and touches nothing else. It returns 0 or an error number; `action` is for its message.
 */
void job_call(uint32_t stream, const struct request *request, uint64_t deadline_ms, int (*call)(void),
              const char *action);
/* A system call that leaves errno alone: its result, or a negative error number. */
long child_call(long number, long first, long second, long third, long fourth);

/* For children. */
void child_put(struct answer_pipe *pipe, enum status status, const struct field_writer *fields);
void child_put_status(struct answer_pipe *pipe, enum status status, const char *message);
void child_put_errno(struct answer_pipe *pipe, const char *action, int problem);
/* Undoes what PID 1 did to signals, and closes all descriptors from 3 on but `keep`. */
void child_prepare(const int *keep, size_t keep_count);

#endif
