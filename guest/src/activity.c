/* See activity.h. */
#include "activity.h"

#include <fcntl.h>
#include <unistd.h>

#include "cgroup.h"
#include "figure.h"
#include "operation.h"
#include "process.h"
#include "stream.h"

static int cpu_stat = -1;
static int disk_stat = -1;
static uint64_t file_writes;

void activity_open(void) {
  if (cgroup_workload() >= 0) {
    cpu_stat = openat(cgroup_workload(), "cpu.stat", O_RDONLY | O_CLOEXEC);
  }
  disk_stat = open(DISK_STAT, O_RDONLY | O_CLOEXEC);
}

void activity_note_file_write(void) { file_writes++; }

/* Empty where it cannot be read: the figures in it are then 0. */
static void read_held(int fd, char *text, size_t capacity) {
  ssize_t length = fd >= 0 ? pread(fd, text, capacity - 1, 0) : 0;
  text[length > 0 ? length : 0] = '\0';
}

static uint64_t readers_attached(void) {
  uint64_t count = 0;
  for (struct stream *stream = stream_next(NULL); stream != NULL; stream = stream_next(stream)) {
    if (stream->op == OP_ATTACH) count++;
  }
  return count;
}

void operation_activity(uint32_t id, const struct request *request) {
  (void)request;
  char text[2048];
  struct field_writer *answer = answer_begin(STATUS_OK);
  read_held(cpu_stat, text, sizeof text);
  figure_put(answer, "cpuUsec", figure_after(text, "usage_usec "));
  read_held(disk_stat, text, sizeof text);
  figure_put(answer, "diskWriteBytes", figure_disk_written(text));
  figure_put(answer, "execs", processes_started());
  figure_put(answer, "fileWrites", file_writes);
  figure_put(answer, "attached", readers_attached());
  answer_send(FRAME_RESPONSE, id);
}
