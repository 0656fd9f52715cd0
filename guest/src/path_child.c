/* MAKE_FOLDER and MOVE_PATH. See path_child.h. */
#include "path_child.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "path.h"
#include "path_work.h"

#define NAME_CAPACITY 256
#define PARENT_MODE 0755
/* linux/fs.h is not among the headers of every libc. */
#define NO_REPLACE 1u

static char path[PATH_BYTES_MAX + 1];
static char target[PATH_BYTES_MAX + 1];
static char name[NAME_CAPACITY];
static char target_name[NAME_CAPACITY];

/* MAKE_FOLDER. */

static _Noreturn void fail_make(struct answer_pipe *answers, int problem) {
  path_work_fail_errno(answers, "make the folder", path, problem);
}

static void flush(struct answer_pipe *answers, int folder, const char *action) {
  if (!path_work_flush_folder(folder)) path_work_fail_errno(answers, action, path, errno);
}

/* With exactly this mode: the mask of the process does not count, and mkdir leaves some bits out. */
static bool make(int folder, const char *entry, mode_t mode) {
  if (mkdirat(folder, entry, mode & 01777) != 0) return false;
  if ((mode & 06000) == 0) return true;
  int made = openat(folder, entry, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  bool done = made >= 0 && fchmod(made, mode) == 0;
  int problem = errno;
  if (made >= 0) close(made);
  errno = problem;
  return done;
}

/* The folder that stands there already is fine where missing parents would have been. */
static void accept_folder(struct answer_pipe *answers, int folder) {
  struct stat facts;
  if (fstatat(folder, name, &facts, AT_SYMLINK_NOFOLLOW) != 0) fail_make(answers, errno);
  if (S_ISLNK(facts.st_mode)) fail_make(answers, ELOOP);
  if (!S_ISDIR(facts.st_mode)) fail_make(answers, EEXIST);
}

/* Opens each folder before the last component, making it where it is missing. */
static int open_parents(struct answer_pipe *answers) {
  int folder = path_open(AT_FDCWD, "/", O_PATH | O_DIRECTORY);
  char *at = path;
  while (folder >= 0) {
    while (*at == '/') at++;
    size_t length = strcspn(at, "/");
    char *next = at + length;
    while (*next == '/') next++;
    if (length >= sizeof name) fail_make(answers, ENAMETOOLONG);
    memcpy(name, length > 0 ? at : ".", length > 0 ? length : 1);
    name[length > 0 ? length : 1] = '\0';
    if (*next == '\0') return folder;
    at = next;
    if (mkdirat(folder, name, PARENT_MODE) == 0) {
      flush(answers, folder, "make the folders before");
    } else if (errno != EEXIST) {
      fail_make(answers, errno);
    }
    int below = path_open(folder, name, O_PATH | O_DIRECTORY);
    int problem = errno;
    close(folder);
    errno = problem;
    folder = below;
  }
  fail_make(answers, errno);
}

void path_child_make_folder(const struct request *request, struct answer_pipe *answers) {
  path_work_begin(request, answers);
  path_work_take(request, TAG_PATH, path);
  umask(0);
  bool with_parents = request_number(request, TAG_PARENTS, 0) != 0;
  int folder = with_parents ? open_parents(answers) : path_open_folder(path, name, sizeof name);
  if (folder < 0) fail_make(answers, errno);
  mode_t mode = (mode_t)(request_number(request, TAG_MODE, PARENT_MODE) & 07777);
  if (make(folder, name, mode)) {
    flush(answers, folder, "flush the folder of");
  } else if (errno == EEXIST && with_parents) {
    accept_folder(answers, folder);
  } else {
    fail_make(answers, errno);
  }
  child_put_status(answers, STATUS_OK, NULL);
}

/* MOVE_PATH. */

static enum status move_status(int problem, bool replaces) {
  switch (problem) {
    case EXDEV:
    case EBUSY: /* a file system is mounted on one of them */
      return STATUS_PATH_CROSSES_MOUNT;
    case EINVAL: /* a folder into itself */
      return STATUS_BAD_REQUEST;
    case ENOTDIR: /* parents are open: it is the target, and that is no folder */
      return STATUS_PATH_NOT_FOLDER;
    case EEXIST:
    case ENOTEMPTY:
      return replaces ? STATUS_PATH_NOT_EMPTY : STATUS_PATH_EXISTS;
    default:
      return path_status(problem);
  }
}

/* Names both paths, as the host does, and the one where a link stands. */
static _Noreturn void fail_move(struct answer_pipe *answers, enum status status,
                                const char *culprit, int problem) {
  static char action[PATH_BYTES_MAX + 32];
  static char message[3 * PATH_BYTES_MAX + 128];
  if (problem != ELOOP) {
    snprintf(action, sizeof action, "move \"%s\" to", path);
    path_work_fail(answers, status, action, target, problem);
  }
  snprintf(message, sizeof message, "Cannot move \"%s\" to \"%s\": there is a symbolic link in \"%s\"",
           path, target, culprit);
  child_put_status(answers, status, message);
  _exit(0);
}

static int open_parent(struct answer_pipe *answers, const char *whole, char *last) {
  int folder = path_open_folder(whole, last, NAME_CAPACITY);
  if (folder < 0) fail_move(answers, path_status(errno), whole, errno);
  if (strcmp(last, ".") == 0) fail_move(answers, STATUS_BAD_REQUEST, whole, EINVAL);
  return folder;
}

void path_child_move(const struct request *request, struct answer_pipe *answers) {
  path_work_begin(request, answers);
  path_work_take(request, TAG_PATH, path);
  path_work_take(request, TAG_TARGET, target);
  bool replaces = request_number(request, TAG_REPLACE, 0) != 0;
  int from = open_parent(answers, path, name);
  int to = open_parent(answers, target, target_name);
  unsigned flags = replaces ? 0 : NO_REPLACE;
  if (syscall(SYS_renameat2, from, name, to, target_name, flags) != 0) {
    fail_move(answers, move_status(errno, replaces), target, errno);
  }
  flush(answers, to, "flush the folder of");
  flush(answers, from, "flush the folder of");
  child_put_status(answers, STATUS_OK, NULL);
}
