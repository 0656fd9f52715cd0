/* See file_child.h. */
#include "file_child.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attribute.h"
#include "path.h"
#include "path_work.h"
#include "random_name.h"

#define CHUNK (64u << 10)
#define NAME_BYTES_MAX 256

static char path[PATH_BYTES_MAX + 1];

static _Noreturn void fail(struct answer_pipe *answers, enum status status, const char *action,
                           int problem) {
  path_work_fail(answers, status, action, path, problem);
}

static void begin(const struct request *request, struct answer_pipe *answers) {
  path_work_begin(request, answers);
  path_work_take(request, TAG_PATH, path);
}

static void put_facts(struct answer_pipe *answers, int fd, const struct stat *facts) {
  static uint8_t buffer[256 + ATTRIBUTES_BYTES_MAX];
  struct field_writer fields;
  field_writer_open(&fields, buffer, sizeof buffer);
  facts_put(&fields, facts);
  if (!S_ISLNK(facts->st_mode)) attributes_put(&fields, fd, NULL);
  child_put(answers, STATUS_OK, &fields);
}

/* A link as the last component is described, one before it refused. */
void file_child_stat(const struct request *request, struct answer_pipe *answers) {
  begin(request, answers);
  struct stat facts;
  int fd = path_open(AT_FDCWD, path, O_PATH | O_NOFOLLOW);
  if (fd < 0 || fstat(fd, &facts) != 0) {
    int problem = errno;
    fail(answers, path_status(problem), "look at", problem);
  }
  put_facts(answers, fd, &facts);
}

/* Looks before it opens: opening a pipe or a device has effects of its own. */
static int open_regular(struct answer_pipe *answers, struct stat *facts) {
  int fd = path_open(AT_FDCWD, path, O_PATH);
  if (fd < 0 || fstat(fd, facts) != 0) {
    int problem = errno;
    fail(answers, path_status(problem), "read", problem);
  }
  if (S_ISDIR(facts->st_mode)) fail(answers, STATUS_PATH_IS_DIRECTORY, "read", EISDIR);
  if (!S_ISREG(facts->st_mode)) fail(answers, STATUS_PATH_NOT_FILE, "read", EINVAL);
  close(fd);
  fd = path_open(AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
  if (fd < 0 || fstat(fd, facts) != 0) {
    int problem = errno;
    fail(answers, path_status(problem), "read", problem);
  }
  if (!S_ISREG(facts->st_mode)) fail(answers, STATUS_PATH_NOT_FILE, "read", EINVAL);
  return fd;
}

static bool put_bytes(int fd, const uint8_t *at, size_t length) {
  while (length > 0) {
    ssize_t put = write(fd, at, length);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    at += put;
    length -= (size_t)put;
  }
  return true;
}

void file_child_read(const struct request *request, struct answer_pipe *answers, int bytes) {
  static uint8_t chunk[CHUNK];
  begin(request, answers);
  struct stat facts;
  int fd = open_regular(answers, &facts);
  uint64_t offset = request_number(request, TAG_OFFSET, 0);
  uint64_t left = request_number(request, TAG_LENGTH, UINT64_MAX);
  put_facts(answers, fd, &facts);
  while (left > 0 && offset <= (uint64_t)INT64_MAX) {
    size_t want = left < sizeof chunk ? (size_t)left : sizeof chunk;
    ssize_t got = pread(fd, chunk, want, (off_t)offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      int problem = errno;
      fail(answers, path_status(problem), "read", problem);
    }
    if (got == 0) break;
    if (!put_bytes(bytes, chunk, (size_t)got)) _exit(0); /* nobody wants it any more */
    offset += (uint64_t)got;
    left -= (uint64_t)got;
  }
  child_put_status(answers, STATUS_OK, NULL);
}

struct draft {
  int folder;
  int fd;
  char target[NAME_BYTES_MAX];
  char name[RANDOM_NAME_BYTES];
};

static _Noreturn void fail_draft(struct answer_pipe *answers, const struct draft *draft,
                                 int problem) {
  unlinkat(draft->folder, draft->name, 0);
  fail(answers, path_status(problem), "write", problem);
}

/* What is in the target's place now must be a regular file or nothing. */
static void check_target(struct answer_pipe *answers, const struct draft *draft) {
  struct stat facts;
  if (fstatat(draft->folder, draft->target, &facts, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return;
    int problem = errno;
    fail(answers, path_status(problem), "write", problem);
  }
  if (S_ISLNK(facts.st_mode)) fail(answers, STATUS_PATH_IS_LINK, "write", ELOOP);
  if (S_ISDIR(facts.st_mode)) fail(answers, STATUS_PATH_IS_DIRECTORY, "write", EISDIR);
  if (!S_ISREG(facts.st_mode)) fail(answers, STATUS_PATH_NOT_FILE, "write", EINVAL);
}

static void open_draft(struct answer_pipe *answers, struct draft *draft) {
  size_t length = strlen(path);
  draft->folder = path_open_folder(path, draft->target, sizeof draft->target);
  if (draft->folder < 0) {
    int problem = errno;
    fail(answers, path_status(problem), "write", problem);
  }
  if (path[length - 1] == '/') fail(answers, STATUS_PATH_IS_DIRECTORY, "write", EISDIR);
  check_target(answers, draft);
  draft->fd = -1;
  for (int attempt = 0; draft->fd < 0 && attempt < 10; attempt++) {
    random_name(draft->name);
    draft->fd = openat(draft->folder, draft->name,
                       O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (draft->fd < 0 && errno != EEXIST) break;
  }
  if (draft->fd < 0) {
    int problem = errno;
    fail(answers, path_status(problem), "write", problem);
  }
}

/* Exactly `left` bytes and the commit byte; false where they do not come. */
static bool take_bytes(struct answer_pipe *answers, const struct draft *draft, int bytes,
                       uint64_t left) {
  static uint8_t chunk[CHUNK];
  for (;;) {
    size_t want = left < sizeof chunk ? (size_t)left : sizeof chunk;
    ssize_t got = read(bytes, chunk, left > 0 ? want : 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    if (left == 0) return chunk[0] == FILE_CHILD_COMMIT;
    if (!put_bytes(draft->fd, chunk, (size_t)got)) fail_draft(answers, draft, errno);
    left -= (uint64_t)got;
  }
}

void file_child_write(const struct request *request, struct answer_pipe *answers, int bytes) {
  static struct draft draft;
  begin(request, answers);
  open_draft(answers, &draft);
  child_put_status(answers, STATUS_OK, NULL);
  if (!take_bytes(answers, &draft, bytes, request->number[TAG_SIZE])) {
    unlinkat(draft.folder, draft.name, 0);
    child_put_status(answers, STATUS_CANCELLED, "The file was not written");
    _exit(0);
  }
  mode_t mode = (mode_t)(request_number(request, TAG_MODE, 0644) & 07777);
  if (!attributes_set(draft.fd, request) || fchmod(draft.fd, mode) != 0 || fsync(draft.fd) != 0 || close(draft.fd) != 0) {
    fail_draft(answers, &draft, errno);
  }
  if (renameat(draft.folder, draft.name, draft.folder, draft.target) != 0) {
    fail_draft(answers, &draft, errno);
  }
  if (!path_work_flush_folder(draft.folder)) {
    int problem = errno;
    fail(answers, path_status(problem), "flush the folder of", problem);
  }
  child_put_status(answers, STATUS_OK, NULL);
}
