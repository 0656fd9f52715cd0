/* Folders and paths, the child's side: with the user's ids, never through a symbolic link. */
#ifndef PERDURE_PATH_CHILD_H
#define PERDURE_PATH_CHILD_H

#include "job.h"
#include "request.h"

#define REMOVE_DEPTH_MAX 512u /* folders below each other, a descriptor each; deeper: moved up */

/* list_child.c: an outflow with a record for each entry. */
void path_child_list(const struct request *request, struct answer_pipe *answers, int bytes);
/* path_child.c */
void path_child_make_folder(const struct request *request, struct answer_pipe *answers);
void path_child_move(const struct request *request, struct answer_pipe *answers);
/* remove_child.c */
void path_child_remove(const struct request *request, struct answer_pipe *answers);

#endif
