/*
 * Paths that come over the link: what is acceptable as text, how they are opened without ever
 * following a symbolic link, and which status a failure is. `path_check` is pure; the rest, but for
 * `path_open_cached`, blocks and is for children that have taken the user's ids.
 */
#ifndef PERDURE_PATH_H
#define PERDURE_PATH_H

#include <stdbool.h>
#include <stddef.h>

#include "field.h"
#include "protocol.h"

/* Absolute, at most 4,095 bytes, no `..`: what is wrong, or NULL. */
const char *path_check(struct bytes path);

/* A descriptor, or -1 with errno; ELOOP where a symbolic link is anywhere in the path. */
int path_open(int folder, const char *path, int flags);
/* The same for one component, or several, where no other file system begins on the way: else EXDEV. */
int path_open_within(int folder, const char *path, int flags);
/* The same for an absolute path, but EAGAIN where a file system would have to be asked. */
int path_open_cached(const char *path, int flags);
/* Opens the folder of `path`; `name` is the last component, "." for the root itself. */
int path_open_folder(const char *path, char *name, size_t name_capacity);

enum status path_status(int problem);
/* A sentence for a person: the path, the problem, and the real path where a link was in the way. */
void path_message(char *message, size_t capacity, const char *action, const char *path,
                  int problem);

#endif
