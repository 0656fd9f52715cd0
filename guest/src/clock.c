/*
 * INFO, PING, CLOCK_ADJUST and ENTROPY: what the host asks and sets first after a resume (I4 of the
 * design: wall clock right, kernel random reseeded before anything is let out). All answered within
 * the turn.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/timex.h>
#include <unistd.h>

#include "agent.h"
#include "clock_source.h"
#include "freezer.h"
#include "loop.h"
#include "operation.h"
#include "stream.h"

/* linux/random.h is not among the headers of every libc. */
#define ADD_ENTROPY _IOW('R', 0x03, int[2])
#define RESEED _IO('R', 0x07)

#define NS_PER_S INT64_C(1000000000)

/* Held open: fewer system calls after a wake, and nothing can be put in its place. */
static int random_device = -1;

bool clock_open(void) {
  random_device = open("/dev/urandom", O_RDWR | O_CLOEXEC | O_NONBLOCK);
  return random_device >= 0;
}

void operation_info(uint32_t stream, const struct request *request) {
  (void)request;
  struct field_writer *answer = answer_begin(STATUS_OK);
  field_put_string(answer, TAG_VERSION, AGENT_VERSION);
  field_put_string(answer, TAG_BOOT_ID, agent.boot_id);
  field_put_number(answer, TAG_GENERATION, agent.generation);
  field_put_number(answer, TAG_FROZEN, freezer_is_frozen() ? 1 : 0);
  field_put_number(answer, TAG_REALTIME_NS, realtime_ns());
  field_put_number(answer, TAG_MONOTONIC_NS, monotonic_ns());
  clock_source_put(answer);
  answer_send(FRAME_RESPONSE, stream);
}

void operation_ping(uint32_t stream, const struct request *request) {
  (void)request;
  struct field_writer *answer = answer_begin(STATUS_OK);
  field_put_number(answer, TAG_REALTIME_NS, realtime_ns());
  field_put_number(answer, TAG_MONOTONIC_NS, monotonic_ns());
  answer_send(FRAME_RESPONSE, stream);
}

void operation_clock_adjust(uint32_t stream, const struct request *request) {
  if (!request_has(request, TAG_DELTA_NS)) {
    answer_status(stream, STATUS_BAD_REQUEST, "deltaNs is missing");
    return;
  }
  if (agent.is_test) {
    answer_status(stream, STATUS_NOT_SUPPORTED, "The clock of a test host is left alone");
    return;
  }
  int64_t delta = (int64_t)request->number[TAG_DELTA_NS];
  int64_t seconds = delta / NS_PER_S;
  int64_t rest = delta % NS_PER_S;
  if (rest < 0) {
    rest += NS_PER_S;
    seconds -= 1;
  }
  /* One call, so that no time passes between reading the clock and setting it. */
  struct timex change = {.modes = ADJ_SETOFFSET | ADJ_NANO};
  change.time.tv_sec = seconds;
  change.time.tv_usec = rest;
  if (adjtimex(&change) < 0) {
    char message[96];
    snprintf(message, sizeof message, "Cannot move the clock: %s", strerror(errno));
    answer_status(stream, errno == EINVAL ? STATUS_BAD_REQUEST : STATUS_INTERNAL, message);
    return;
  }
  struct field_writer *answer = answer_begin(STATUS_OK);
  field_put_number(answer, TAG_REALTIME_NS, realtime_ns());
  answer_send(FRAME_RESPONSE, stream);
}

void operation_entropy(uint32_t stream, const struct request *request) {
  struct bytes seed = request->slice[TAG_BYTES];
  if (!request_has(request, TAG_BYTES) || seed.length < ENTROPY_MIN || seed.length > ENTROPY_MAX) {
    answer_status(stream, STATUS_BAD_REQUEST, "bytes must be 32 to 512 long");
    return;
  }
  if (agent.is_test) {
    answer_status(stream, STATUS_NOT_SUPPORTED, "The random pool of a test host is left alone");
    return;
  }
  struct {
    int bits;
    int length;
    uint8_t bytes[ENTROPY_MAX];
  } pool = {.bits = (int)seed.length * 8, .length = (int)seed.length};
  memcpy(pool.bytes, seed.at, seed.length);
  bool done = ioctl(random_device, ADD_ENTROPY, &pool) == 0 && ioctl(random_device, RESEED) == 0;
  int problem = errno;
  explicit_bzero(&pool, sizeof pool);
  if (done) {
    answer_status(stream, STATUS_OK, NULL);
  } else {
    char message[96];
    snprintf(message, sizeof message, "Cannot add entropy: %s", strerror(problem));
    answer_status(stream, STATUS_INTERNAL, message);
  }
}
