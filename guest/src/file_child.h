/*
 * STAT, READ_FILE and WRITE_FILE, the child's side. Each takes the user's ids before it touches a
 * path, blocks as it likes, and ends with the process.
 */
#ifndef PERDURE_FILE_CHILD_H
#define PERDURE_FILE_CHILD_H

#include "job.h"
#include "request.h"

/* After the last byte of a file this one says that the host has ended it. */
#define FILE_CHILD_COMMIT 0xc3

void file_child_stat(const struct request *request, struct answer_pipe *answers);
/* The facts, then bytes on `bytes`, then an END record. */
void file_child_read(const struct request *request, struct answer_pipe *answers, int bytes);
/* A record when it is ready for bytes, then the outcome. */
void file_child_write(const struct request *request, struct answer_pipe *answers, int bytes);

#endif
