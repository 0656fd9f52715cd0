/* See text_file.h. */
#include "text_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "random_name.h"

ssize_t text_file_read_at(int folder, const char *name, char *buffer, size_t capacity) {
  int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOCTTY);
  if (fd < 0) return -1;
  size_t length = 0;
  ssize_t got = 0;
  while (length + 1 < capacity) {
    got = read(fd, buffer + length, capacity - 1 - length);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    length += (size_t)got;
  }
  buffer[length] = '\0';
  close(fd);
  return got < 0 ? -1 : (ssize_t)length;
}

char *text_file_read(const char *path, size_t length_max) {
  size_t capacity = 64u << 10;
  char *buffer = NULL;
  ssize_t length = 0;
  for (;;) {
    if (capacity > length_max + 1) capacity = length_max + 1;
    char *larger = realloc(buffer, capacity);
    if (larger == NULL) break;
    buffer = larger;
    length = text_file_read_at(AT_FDCWD, path, buffer, capacity);
    if (length < 0) break;
    if ((size_t)length + 1 < capacity || capacity == length_max + 1) return buffer;
    capacity *= 2;
  }
  free(buffer);
  return NULL;
}

bool text_file_write_at(int folder, const char *name, const char *text) {
  int fd = openat(folder, name, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t put = write(fd, text, strlen(text));
  int problem = errno;
  close(fd);
  errno = problem;
  return put == (ssize_t)strlen(text);
}

static bool write_all(int fd, const void *bytes, size_t length) {
  const char *at = bytes;
  while (length > 0) {
    ssize_t put = write(fd, at, length);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    at += put;
    length -= (size_t)put;
  }
  return true;
}

int text_file_draft_at(int folder, char *draft, mode_t mode) {
  int fd = -1;
  for (int attempt = 0; fd < 0 && attempt < 10; attempt++) {
    random_name(draft);
    fd = openat(folder, draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 && errno != EEXIST) return -1;
  }
  if (fd < 0 || fchmod(fd, mode) == 0) return fd;
  int problem = errno;
  close(fd);
  unlinkat(folder, draft, 0);
  errno = problem;
  return -1;
}

bool text_file_replace_at(int folder, const char *name, const void *bytes, size_t length,
                          mode_t mode) {
  char draft[RANDOM_NAME_BYTES];
  int fd = text_file_draft_at(folder, draft, mode);
  if (fd < 0) return false;
  bool done = write_all(fd, bytes, length) && fsync(fd) == 0;
  int problem = errno;
  if (close(fd) != 0 && done) {
    problem = errno;
    done = false;
  }
  if (done && renameat(folder, draft, folder, name) != 0) {
    problem = errno;
    done = false;
  }
  if (!done) unlinkat(folder, draft, 0);
  errno = problem;
  return done;
}

/* A file that can be written over, or -1. Opening it never waits, whatever it is. */
static int open_over(int folder, const char *name, mode_t mode, off_t *size) {
  int fd = openat(folder, name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return -1;
  struct stat facts;
  if (fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_nlink == 1 &&
      facts.st_uid == geteuid() && (facts.st_mode & 07777) == mode) {
    *size = facts.st_size;
    return fd;
  }
  close(fd);
  return -1;
}

bool text_file_rewrite_at(int folder, const char *name, const void *bytes, size_t length,
                          mode_t mode) {
  off_t size = 0;
  int fd = open_over(folder, name, mode, &size);
  if (fd < 0) return text_file_replace_at(folder, name, bytes, length, mode);
  bool done = write_all(fd, bytes, length) &&
              (size <= (off_t)length || ftruncate(fd, (off_t)length) == 0) && fdatasync(fd) == 0;
  int problem = errno;
  if (close(fd) != 0 && done) {
    problem = errno;
    done = false;
  }
  errno = problem;
  return done;
}
