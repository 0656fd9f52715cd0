/* Small files read whole and replaced whole. Blocks: for boot, for children, and for procfs. */
#ifndef PERDURE_TEXT_FILE_H
#define PERDURE_TEXT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The text with a terminating zero (free it), or NULL with errno. Longer files are cut. */
char *text_file_read(const char *path, size_t length_max);
/* Into a buffer of the caller; the length without the terminating zero, or -1. */
ssize_t text_file_read_at(int folder, const char *name, char *buffer, size_t capacity);
/* One write to an existing file, as procfs and cgroupfs want it. */
bool text_file_write_at(int folder, const char *name, const char *text);
/*
 * An empty new file under a random name (`draft`, RANDOM_NAME_BYTES long), to be filled and renamed.
 * A descriptor to write to, or -1 with errno.
 */
int text_file_draft_at(int folder, char *draft, mode_t mode);
/*
 * Puts a file in place by rename, owned by the caller, flushed to disk: a watcher sees one event
 * and never half a file. False with errno.
 */
bool text_file_replace_at(int folder, const char *name, const void *bytes, size_t length,
                          mode_t mode);

/*
 * As text_file_replace_at, but written over the file that is there, if it is a plain one under one name with
 * this mode: much less work for the kernel. For when nobody reads it meanwhile. False with errno.
 */
bool text_file_rewrite_at(int folder, const char *name, const void *bytes, size_t length,
                          mode_t mode);

#endif
