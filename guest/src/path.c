/* See path.h. */
#include "path.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* linux/openat2.h is not among the headers of every libc. */
struct how {
  uint64_t flags;
  uint64_t mode;
  uint64_t resolve;
};
#define NO_XDEV 0x01u
#define NO_MAGICLINKS 0x02u
#define NO_SYMLINKS 0x04u
#define BENEATH 0x08u
#define CACHED 0x20u

const char *path_check(struct bytes path) {
  if (path.length == 0) return "The path is empty";
  if (path.at[0] != '/') return "The path is not absolute";
  if (path.length > PATH_BYTES_MAX) return "The path is longer than 4,095 bytes";
  if (memchr(path.at, 0, path.length) != NULL) return "The path holds a zero byte";
  size_t at = 0;
  while (at < path.length) {
    const uint8_t *slash = memchr(path.at + at, '/', path.length - at);
    size_t length = slash != NULL ? (size_t)(slash - (path.at + at)) : path.length - at;
    if (length == 2 && path.at[at] == '.' && path.at[at + 1] == '.') {
      return "The path has a component \"..\"";
    }
    at += length + 1;
  }
  return NULL;
}

static int open_with(int folder, const char *path, int flags, uint64_t resolve) {
  struct how how = {
      .flags = (uint64_t)(unsigned)(flags | O_CLOEXEC),
      .mode = 0,
      .resolve = resolve | NO_MAGICLINKS | NO_SYMLINKS,
  };
  return (int)syscall(SYS_openat2, folder, path, &how, sizeof how);
}

int path_open(int folder, const char *path, int flags) {
  return open_with(folder, path, flags, 0);
}

int path_open_within(int folder, const char *path, int flags) {
  return open_with(folder, path, flags, NO_XDEV | BENEATH);
}

int path_open_cached(const char *path, int flags) {
  return open_with(AT_FDCWD, path, flags, CACHED);
}

int path_open_folder(const char *path, char *name, size_t name_capacity) {
  char folder[PATH_BYTES_MAX + 1];
  size_t length = strlen(path);
  if (length > PATH_BYTES_MAX) {
    errno = ENAMETOOLONG;
    return -1;
  }
  memcpy(folder, path, length + 1);
  while (length > 1 && folder[length - 1] == '/') folder[--length] = '\0';
  char *slash = strrchr(folder, '/');
  const char *last = slash[1] != '\0' ? slash + 1 : ".";
  if (strlen(last) >= name_capacity) {
    errno = ENAMETOOLONG;
    return -1;
  }
  strcpy(name, last);
  slash[slash == folder ? 1 : 0] = '\0';
  return path_open(AT_FDCWD, folder, O_PATH | O_DIRECTORY);
}

enum status path_status(int problem) {
  switch (problem) {
    case ENOENT:
    case ENOTDIR:
      return STATUS_PATH_NOT_FOUND;
    case EACCES:
    case EPERM:
    case EROFS:
      return STATUS_PATH_DENIED;
    case ELOOP:
      return STATUS_PATH_IS_LINK;
    case EISDIR:
      return STATUS_PATH_IS_DIRECTORY;
    case EEXIST:
      return STATUS_PATH_EXISTS;
    case ENOTEMPTY:
      return STATUS_PATH_NOT_EMPTY;
    case EXDEV:
      return STATUS_PATH_CROSSES_MOUNT;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return STATUS_DISK_FULL;
    case ENAMETOOLONG:
      return STATUS_BAD_REQUEST;
    case ENOSYS:
      return STATUS_NOT_SUPPORTED;
    default:
      return STATUS_INTERNAL;
  }
}

/* What leads there is of whoever asks, and elsewhere for the next. */
static bool is_of_caller(const char *path) {
  return strncmp(path, "/proc/", 6) == 0 || strncmp(path, "/dev/", 5) == 0;
}

void path_message(char *message, size_t capacity, const char *action, const char *path,
                  int problem) {
  if (problem != ELOOP) {
    const char *why = problem == EXDEV ? "another file system begins there" : strerror(problem);
    snprintf(message, capacity, "Cannot %s \"%s\": %s", action, path, why);
    return;
  }
  char *real = realpath(path, NULL);
  if (real != NULL && !is_of_caller(path) && !is_of_caller(real)) {
    snprintf(message, capacity,
             "Cannot %s \"%s\": there is a symbolic link in the path. Use \"%s\"", action, path,
             real);
  } else {
    snprintf(message, capacity, "Cannot %s \"%s\": there is a symbolic link in the path", action,
             path);
  }
  free(real);
}
