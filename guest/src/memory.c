/* FLUSH and DROP_CACHES: what the host asks for before a capture. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "agent.h"
#include "job.h"
#include "operation.h"
#include "text_file.h"

#define DEADLINE_MS 30000u

static void flush(const struct request *request, struct answer_pipe *pipe) {
  (void)request;
  sync();
  child_put_status(pipe, STATUS_OK, NULL);
}

void operation_flush(uint32_t stream, const struct request *request) {
  struct job_plan plan = {.work = flush,
                          .deadline_ms = request_number(request, TAG_DEADLINE_MS, DEADLINE_MS)};
  job_run(stream, request, &plan);
}

static void drop_caches(const struct request *request, struct answer_pipe *pipe) {
  (void)request;
  if (text_file_write_at(AT_FDCWD, "/proc/sys/vm/drop_caches", "3")) {
    child_put_status(pipe, STATUS_OK, NULL);
  } else {
    child_put_errno(pipe, "drop caches", errno);
  }
}

void operation_drop_caches(uint32_t stream, const struct request *request) {
  if (agent.is_test) {
    answer_status(stream, STATUS_NOT_SUPPORTED, "The caches of a test host are left alone");
    return;
  }
  struct job_plan plan = {.work = drop_caches,
                          .deadline_ms = request_number(request, TAG_DEADLINE_MS, DEADLINE_MS)};
  job_run(stream, request, &plan);
}
