/* See operation.h. */
#include "operation.h"

#include "agent.h"
#include "link.h"
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
    [OP_RESIZE] = operation_resize,
    [OP_LIST_FOLDER] = operation_list_folder,
    [OP_MAKE_FOLDER] = operation_make_folder,
    [OP_MOVE_PATH] = operation_move_path,
    [OP_REMOVE_PATH] = operation_remove_path,
    [OP_WATCH] = operation_watch,
    [OP_ACTIVITY] = operation_activity,
    [OP_CLOCK_SOURCE] = operation_clock_source,
    [OP_FROZEN_WAITS] = operation_frozen_waits,
    [OP_CONNECT] = operation_connect,
    [OP_OUTBOUND] = operation_outbound,
    [OP_CARRY] = operation_carry,
};

#define OPERATION_LIMIT (sizeof OPERATIONS / sizeof OPERATIONS[0])

/* What a host of an older version asks for by accident it gets as little as from an older agent. */
static bool is_known(uint16_t op) {
  if (op >= OPERATION_LIMIT || OPERATIONS[op] == NULL) return false;
  if (op >= OP_FIRST_OF_VERSION_3) return link_version() >= 3;
  return op < OP_FIRST_OF_VERSION_2 || link_version() >= 2;
}

void operation_run(uint32_t stream, struct bytes payload) {
  static struct request request;
  const char *why = "";
  enum status status = request_decode(payload, &request, &why);
  if (payload.length >= 2 && !is_known(request.op)) {
    answer_status(stream, STATUS_UNKNOWN_OPERATION, "This guest agent does not know the operation");
  } else if (status != STATUS_OK) {
    answer_status(stream, status, why);
  } else {
    OPERATIONS[request.op](stream, &request);
  }
}
