/* FLUSH and DROP_CACHES: what the host asks for before a capture. */
#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent.h"
#include "job.h"
#include "operation.h"

#define DEADLINE_MS 30000u

/* Held open from the start, as the child may not open it: it shares the descriptors. */
static int drop_caches_file = -1;

void memory_open(void) {
  drop_caches_file = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);
}

static int flush(void) {
  child_call(SYS_sync, 0, 0, 0, 0);
  return 0;
}

void operation_flush(uint32_t stream, const struct request *request) {
  uint64_t deadline_ms = request_number(request, TAG_DEADLINE_MS, DEADLINE_MS);
  generation_make_ready(); /* a capture may follow, and a wake from it */
  job_call(stream, request, deadline_ms, flush, "flush");
}

static int drop_caches(void) {
  static const char page_cache_and_slab[] = "3";
  long put = child_call(SYS_pwrite64, drop_caches_file, (long)page_cache_and_slab, 1, 0);
  return put < 0 ? (int)-put : 0;
}

void operation_drop_caches(uint32_t stream, const struct request *request) {
  if (agent.is_test) {
    answer_status(stream, STATUS_NOT_SUPPORTED, "The caches of a test host are left alone");
    return;
  }
  uint64_t deadline_ms = request_number(request, TAG_DEADLINE_MS, DEADLINE_MS);
  job_call(stream, request, deadline_ms, drop_caches, "drop caches");
}
