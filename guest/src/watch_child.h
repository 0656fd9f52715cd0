/*
 * WATCH, the child's side: an outflow whose RESPONSE comes when every watch stands, and then a record for each
 * change.
 *
 * Invariants:
 *  I1 A folder is watched before it is listed: what appears in it is told by one of the two, if not both.
 *  I2 What could not be told or kept is said to be missed: a queue that ran over, folders beyond the limits,
 *     paths too long. A reader that takes nothing fills the pipe, then the kernel's queue, and no more.
 *  I3 No link is followed, and no other file system entered.
 */
#ifndef PERDURE_WATCH_CHILD_H
#define PERDURE_WATCH_CHILD_H

#include "job.h"
#include "request.h"

#define WATCH_PATH_MAX 8192u /* bytes of a path that is told, its end included */

void watch_child(const struct request *request, struct answer_pipe *answers, int bytes);

#endif
