/*
 * What every child that works on a path begins and ends with. For children only: these take the user's ids for
 * good, and end the process where something fails.
 */
#ifndef PERDURE_PATH_WORK_H
#define PERDURE_PATH_WORK_H

#include <sys/stat.h>

#include "field.h"
#include "job.h"
#include "request.h"

/* Takes the ids of the request's user. */
void path_work_begin(const struct request *request, struct answer_pipe *answers);
/* The string of `tag`, checked before as a path, in `path`, which has room for every path. */
void path_work_take(const struct request *request, enum tag tag, char *path);
/* The last record: what could not be done, and why. */
_Noreturn void path_work_fail(struct answer_pipe *answers, enum status status, const char *action,
                              const char *path, int problem);
/* The same with the status that the problem has. */
_Noreturn void path_work_fail_errno(struct answer_pipe *answers, const char *action,
                                    const char *path, int problem);
/* False where it could not be flushed; true, too, where the user may write to it but not read. */
bool path_work_flush_folder(int folder);
/* kind, size, mode, uid, gid, mtimeNs. */
void facts_put(struct field_writer *fields, const struct stat *facts);

#endif
