/* LIST_FOLDER, MAKE_FOLDER, MOVE_PATH, REMOVE_PATH and WATCH, the loop's side. */
#include "activity.h"
#include "job.h"
#include "operation.h"
#include "outflow.h"
#include "path.h"
#include "path_child.h"
#include "stream.h"
#include "watch_child.h"

static bool path_is_good(uint32_t id, const struct request *request, enum tag tag) {
  const char *problem = request_has(request, tag) ? path_check(request->slice[tag])
                                                  : "A path is missing";
  if (problem != NULL) answer_status(id, STATUS_BAD_REQUEST, problem);
  return problem == NULL;
}

static void changed(enum status status, struct bytes fields) {
  (void)fields;
  if (status == STATUS_OK) activity_note_file_write();
}

static void change(uint32_t id, const struct request *request,
                   void (*work)(const struct request *, struct answer_pipe *)) {
  struct job_plan plan = {.work = work,
                          .deadline_ms = request_number(request, TAG_DEADLINE_MS, 0),
                          .after = changed};
  if (path_is_good(id, request, TAG_PATH)) job_run(id, request, &plan);
}

void operation_make_folder(uint32_t id, const struct request *request) {
  change(id, request, path_child_make_folder);
}

void operation_move_path(uint32_t id, const struct request *request) {
  if (path_is_good(id, request, TAG_TARGET)) change(id, request, path_child_move);
}

void operation_remove_path(uint32_t id, const struct request *request) {
  change(id, request, path_child_remove);
}

void operation_list_folder(uint32_t id, const struct request *request) {
  if (path_is_good(id, request, TAG_PATH)) outflow_run(id, request, path_child_list);
}

void operation_watch(uint32_t id, const struct request *request) {
  unsigned open = 0;
  for (struct stream *stream = stream_next(NULL); stream != NULL; stream = stream_next(stream)) {
    if (stream->op == OP_WATCH) open++;
  }
  if (open >= WATCHES_MAX) {
    answer_status(id, STATUS_TOO_MANY, "16 watches are open");
  } else if (path_is_good(id, request, TAG_PATH)) {
    outflow_run(id, request, watch_child);
  }
}
