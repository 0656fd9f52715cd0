/* See clock_source.h. */
#include "clock_source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent.h"
#include "operation.h"
#include "stream.h"

#define SOURCE_FILE "/sys/devices/system/clocksource/clocksource0/current_clocksource"
#define NAME_MAX_BYTES 64u
#define NS_PER_S UINT64_C(1000000000)
/* One in which nothing came between the readings is exact to a microsecond. */
#define READINGS 5
/* Over less than this a reading's error counts. */
#define SPAN_MIN_NS NS_PER_S

struct reading {
  uint64_t ticks;
  uint64_t raw_ns; /* CLOCK_MONOTONIC_RAW: the kernel's own count, nobody adjusts it */
};

/* Held open: read and written after a wake, and nothing can be put in its place. */
static int source_file = -1;
static struct reading first;
static uint64_t tsc_hz; /* as it was last measured; 0: not yet */

#if defined(__x86_64__)
static uint64_t ticks_now(void) { return __builtin_ia32_rdtsc(); }
#else
static uint64_t ticks_now(void) { return 0; }
#endif

static struct reading read_both(void) {
  struct reading best = {0, 0};
  uint64_t best_span = UINT64_MAX;
  for (int i = 0; i < READINGS; i++) {
    struct timespec raw;
    uint64_t before = ticks_now();
    clock_gettime(CLOCK_MONOTONIC_RAW, &raw);
    uint64_t span = ticks_now() - before;
    if (span >= best_span) continue;
    best_span = span;
    best.ticks = before + span / 2;
    best.raw_ns = (uint64_t)raw.tv_sec * NS_PER_S + (uint64_t)raw.tv_nsec;
  }
  return best;
}

static void read_name(char *name, size_t capacity) {
  ssize_t length = source_file < 0 ? -1 : pread(source_file, name, capacity - 1, 0);
  name[length > 0 ? length : 0] = '\0';
  name[strcspn(name, "\n")] = '\0';
}

/* "tsc-early" is the same counter before its rate was refined. */
static bool counts_by_tsc(const char *name) { return strncmp(name, "tsc", 3) == 0; }

void clock_source_open(void) {
  source_file = open(SOURCE_FILE, (agent.is_test ? O_RDONLY : O_RDWR) | O_CLOEXEC);
  first = read_both();
}

void clock_source_put(struct field_writer *answer) {
  char name[NAME_MAX_BYTES];
  read_name(name, sizeof name);
  if (name[0] == '\0') return;
  if (counts_by_tsc(name)) {
    struct reading now = read_both();
    if (now.raw_ns > first.raw_ns && now.raw_ns - first.raw_ns >= SPAN_MIN_NS) {
      double ticks = (double)(now.ticks - first.ticks);
      tsc_hz = (uint64_t)(ticks * (double)NS_PER_S / (double)(now.raw_ns - first.raw_ns));
    }
  }
  field_put_string(answer, TAG_NAME, counts_by_tsc(name) ? "tsc" : name);
  if (tsc_hz != 0) field_put_number(answer, TAG_VALUE, tsc_hz);
}

void operation_clock_source(uint32_t stream, const struct request *request) {
  struct bytes name = request->slice[TAG_NAME];
  if (!request_has(request, TAG_NAME) || name.length == 0 || name.length >= NAME_MAX_BYTES) {
    answer_status(stream, STATUS_BAD_REQUEST, "name must be 1 to 63 bytes long");
    return;
  }
  if (agent.is_test) {
    answer_status(stream, STATUS_NOT_SUPPORTED, "The clock of a test host is left alone");
    return;
  }
  /* The kernel takes a name that it does not know without a word, and stays as it is. */
  char current[NAME_MAX_BYTES];
  bool written = pwrite(source_file, name.at, name.length, 0) == (ssize_t)name.length;
  int problem = errno;
  read_name(current, sizeof current);
  if (!written || strlen(current) != name.length || memcmp(current, name.at, name.length) != 0) {
    char message[160];
    snprintf(message, sizeof message, "The kernel keeps time by \"%s\"%s%s", current,
             written ? "" : ": ", written ? "" : strerror(problem));
    answer_status(stream, STATUS_NOT_SUPPORTED, message);
    return;
  }
  first = read_both(); /* while it kept time by something else the two went apart */
  answer_status(stream, STATUS_OK, NULL);
}
