/*
 * FROZEN_WAITS: the time that passed since the freeze, taken off every wait that the freeze turned into a
 * rest of time (frozen_wait.h). In a child, because memory of a frozen program may be a file of another one.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>

#include "cgroup.h"
#include "freezer.h"
#include "frozen_wait.h"
#include "job.h"
#include "operation.h"
#include "stream.h"
#include "text_file.h"

#define DEADLINE_MS 5000u

struct tally {
  uint64_t passed_ns;
  uint64_t shortened;
};

static uint64_t passed_ns; /* for the child: what the request stands for */

static void shorten(pid_t thread, struct frozen_wait wait, struct tally *tally) {
  int64_t rest[2];
  struct iovec here = {rest, sizeof rest};
  struct iovec there = {(void *)(uintptr_t)wait.address, sizeof rest};
  if (process_vm_readv(thread, &here, 1, &there, 1, 0) != (ssize_t)sizeof rest) return;
  if (!frozen_wait_shorten(rest, wait.is_timeval, tally->passed_ns)) return;
  /* Not through /proc/PID/mem: what the program itself may not write stays as it is. */
  if (process_vm_writev(thread, &here, 1, &there, 1, 0) == (ssize_t)sizeof rest) tally->shortened++;
}

static void look_at_process(pid_t pid, void *context) {
  char name[64];
  char text[512];
  struct frozen_wait wait;
  snprintf(name, sizeof name, "/proc/%d/task", pid);
  DIR *threads = opendir(name);
  if (threads == NULL) return;
  for (struct dirent *entry; (entry = readdir(threads)) != NULL;) {
    long thread = strtol(entry->d_name, NULL, 10);
    if (thread <= 0) continue;
    snprintf(name, sizeof name, "/proc/%d/task/%ld/syscall", pid, thread);
    if (text_file_read_at(AT_FDCWD, name, text, sizeof text) <= 0) continue;
    if (frozen_wait_parse(text, &wait)) shorten((pid_t)thread, wait, context);
  }
  closedir(threads);
}

static void shorten_all(const struct request *request, struct answer_pipe *pipe) {
  (void)request;
  static uint8_t buffer[64];
  struct tally tally = {.passed_ns = passed_ns};
  cgroup_each_process(cgroup_workload(), look_at_process, &tally);
  struct field_writer fields;
  field_writer_open(&fields, buffer, sizeof buffer);
  field_put_number(&fields, TAG_VALUE, tally.shortened);
  child_put(pipe, STATUS_OK, &fields);
}

void operation_frozen_waits(uint32_t stream, const struct request *request) {
  if (!freezer_is_frozen()) {
    answer_status(stream, STATUS_BAD_REQUEST, "The workload is not frozen");
    return;
  }
  passed_ns = freezer_take_passed_ns();
  struct job_plan plan = {.work = shorten_all,
                          .deadline_ms = request_number(request, TAG_DEADLINE_MS, DEADLINE_MS),
                          .keep_running = true,
                          .keep_cgroups = true};
  job_run(stream, request, &plan);
}
