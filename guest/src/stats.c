/*
 * STATS: figures of the VM and its workload, gathered in a child (a file system may be slow). Those of
 * memory alone are told within the turn.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "activity.h"
#include "cgroup.h"
#include "figure.h"
#include "job.h"
#include "operation.h"
#include "process.h"
#include "stream.h"
#include "text_file.h"

#define DEADLINE_MS 5000u
#define MEMINFO "/proc/meminfo"

/* Held open from the start, so that nothing mounted over its path makes anyone wait. */
static int meminfo_held = -1;

void stats_open(void) { meminfo_held = open(MEMINFO, O_RDONLY | O_CLOEXEC); }

static void put_memory(struct field_writer *fields, int meminfo) {
  static const struct {
    const char *name;
    const char *key;
  } FIGURES[] = {
      {"memTotalBytes", "MemTotal:"},     {"memAvailableBytes", "MemAvailable:"},
      {"anonBytes", "AnonPages:"},        {"shmemBytes", "Shmem:"},
      {"cachedBytes", "Cached:"},         {"memFreeBytes", "MemFree:"},
      {"buffersBytes", "Buffers:"},       {"dirtyBytes", "Dirty:"},
      {"unevictableBytes", "Unevictable:"}, {"slabBytes", "Slab:"},
      {"slabReclaimableBytes", "SReclaimable:"},
  };
  char text[4096] = "";
  ssize_t length = pread(meminfo, text, sizeof text - 1, 0);
  text[length > 0 ? length : 0] = '\0';
  for (size_t i = 0; i < sizeof FIGURES / sizeof FIGURES[0]; i++) {
    figure_put(fields, FIGURES[i].name, figure_after(text, FIGURES[i].key) * 1024);
  }
}

static void count_one(pid_t pid, void *context) {
  (void)pid;
  ++*(uint64_t *)context;
}

static void put_workload(struct field_writer *fields) {
  char text[2048] = "";
  uint64_t count = 0;
  if (cgroup_workload() >= 0) {
    text_file_read_at(cgroup_workload(), "cpu.stat", text, sizeof text);
    cgroup_each_process(cgroup_workload(), count_one, &count);
  } else {
    for (struct process *process = process_next(NULL); process != NULL;
         process = process_next(process)) {
      process_each_of_tree(process, count_one, &count);
    }
  }
  figure_put(fields, "cpuUsec", figure_after(text, "usage_usec "));
  figure_put(fields, "processes", count);
}

static void put_load(struct field_writer *fields) {
  char text[128] = "";
  unsigned whole = 0;
  unsigned hundredths = 0;
  text_file_read_at(AT_FDCWD, "/proc/loadavg", text, sizeof text);
  sscanf(text, "%u.%u", &whole, &hundredths);
  figure_put(fields, "load1Milli", (uint64_t)whole * 1000 + (uint64_t)hundredths * 10);
}

static void put_disk(struct field_writer *fields) {
  struct statvfs facts;
  memset(&facts, 0, sizeof facts);
  statvfs("/", &facts);
  figure_put(fields, "diskTotalBytes", (uint64_t)facts.f_blocks * facts.f_frsize);
  figure_put(fields, "diskFreeBytes", (uint64_t)facts.f_bavail * facts.f_frsize);
  char text[512] = "";
  text_file_read_at(AT_FDCWD, DISK_STAT, text, sizeof text);
  figure_put(fields, "diskWriteBytes", figure_disk_written(text));
}

static void gather(const struct request *request, struct answer_pipe *pipe) {
  (void)request;
  static uint8_t buffer[4096];
  struct field_writer fields;
  field_writer_open(&fields, buffer, sizeof buffer);
  put_memory(&fields, open(MEMINFO, O_RDONLY | O_CLOEXEC)); /* the held one is closed here */
  put_workload(&fields);
  put_load(&fields);
  put_disk(&fields);
  child_put(pipe, STATUS_OK, &fields);
}

static bool is_memory_only(const struct request *request) {
  struct bytes kind = request->slice[TAG_KIND];
  return request_has(request, TAG_KIND) && kind.length == 6 && memcmp(kind.at, "memory", 6) == 0;
}

/* Children close what they do not need; the workload's folder is needed here. */
void operation_stats(uint32_t stream, const struct request *request) {
  if (is_memory_only(request)) {
    put_memory(answer_begin(STATUS_OK), meminfo_held);
    answer_send(FRAME_RESPONSE, stream);
    return;
  }
  struct job_plan plan = {.work = gather,
                          .deadline_ms = request_number(request, TAG_DEADLINE_MS, DEADLINE_MS),
                          .keep_cgroups = true};
  job_run(stream, request, &plan);
}
