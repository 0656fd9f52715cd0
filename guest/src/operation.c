/* See operation.h. */
#include "operation.h"

#include "agent.h"
#include "stream.h"

typedef void (*operation_function)(uint32_t stream, const struct request *request);

static const operation_function OPERATIONS[] = {
    [OP_INFO] = operation_info,
    [OP_PING] = operation_ping,
    [OP_CLOCK_ADJUST] = operation_clock_adjust,
    [OP_ENTROPY] = operation_entropy,
    [OP_FLUSH] = operation_flush,
    [OP_FREEZE] = operation_freeze,
    [OP_THAW] = operation_thaw,
    [OP_GENERATION] = operation_generation,
    [OP_IDENTITY] = operation_identity,
    [OP_HOOKS] = operation_hooks,
    [OP_EXEC] = operation_exec,
    [OP_ATTACH] = operation_attach,
    [OP_STDIN] = operation_stdin,
    [OP_SIGNAL] = operation_signal,
    [OP_PROCESSES] = operation_processes,
    [OP_FORGET] = operation_forget,
    [OP_READ_FILE] = operation_read_file,
    [OP_WRITE_FILE] = operation_write_file,
    [OP_STAT] = operation_stat,
    [OP_STATS] = operation_stats,
    [OP_TIMERS] = operation_timers,
    [OP_DROP_CACHES] = operation_drop_caches,
    [OP_SHUTDOWN] = operation_shutdown,
};

#define OPERATION_LIMIT (sizeof OPERATIONS / sizeof OPERATIONS[0])

void operation_run(uint32_t stream, struct bytes payload) {
  static struct request request;
  const char *why = "";
  enum status status = request_decode(payload, &request, &why);
  if (payload.length >= 2 && (request.op >= OPERATION_LIMIT || OPERATIONS[request.op] == NULL)) {
    answer_status(stream, STATUS_UNKNOWN_OPERATION, "This guest agent does not know the operation");
  } else if (status != STATUS_OK) {
    answer_status(stream, status, why);
  } else {
    OPERATIONS[request.op](stream, &request);
  }
}
