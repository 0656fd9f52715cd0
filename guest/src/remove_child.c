/*
 * REMOVE_PATH. See path_child.h.
 *
 * Everything is named relative to a folder that is open, so that nothing that is moved or replaced meanwhile
 * leads elsewhere; and a folder is opened only where no mount and no link is on the way. Each folder that it is in
 * takes a descriptor: one that is deeper than those reach is moved up into the outermost, and emptied there.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "path.h"
#include "path_child.h"
#include "path_work.h"
#include "random_name.h"

/* linux/fs.h is not among the headers of every libc. */
#define NO_REPLACE 1u
#define ATTEMPTS_MAX 16u /* at what becomes another thing, or is filled, while it is removed */

static char path[PATH_BYTES_MAX + 1];
static struct answer_pipe *answers;
static int outermost = -1;

static _Noreturn void fail(enum status status, int problem) {
  path_work_fail(answers, status, "remove", path, problem);
}

static _Noreturn void fail_errno(int problem) {
  switch (problem) {
    case EBUSY:
    case EXDEV:
      fail(STATUS_PATH_CROSSES_MOUNT, EXDEV);
    case ENOTEMPTY:
    case EEXIST:
      fail(STATUS_PATH_NOT_EMPTY, ENOTEMPTY);
    default:
      fail(path_status(problem), problem);
  }
}

static void remove_tree(int parent, const char *name, unsigned depth);

/* What is no folder, or an empty one. False where it is a folder with something in it. */
static bool remove_one(int folder, const char *name) {
  for (unsigned attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
    if (unlinkat(folder, name, 0) == 0 || errno == ENOENT) return true;
    int problem = errno;
    if (problem != EISDIR && problem != EPERM) fail_errno(problem); /* POSIX has EPERM for folders */
    if (unlinkat(folder, name, AT_REMOVEDIR) == 0 || errno == ENOENT) return true;
    if (errno == ENOTEMPTY || errno == EEXIST) return false;
    if (errno != ENOTDIR) fail_errno(errno);
    if (problem == EPERM) fail_errno(EPERM);
  }
  fail_errno(EAGAIN); /* a folder whenever it is looked at as none, and the other way round */
}

/* One pass over the entries; false where there were none. */
static bool remove_entries(DIR *entries, unsigned depth) {
  bool found = false;
  rewinddir(entries);
  for (;;) {
    errno = 0;
    struct dirent *entry = readdir(entries);
    if (entry == NULL && errno != 0) fail_errno(errno);
    if (entry == NULL) return found;
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    found = true;
    remove_tree(dirfd(entries), entry->d_name, depth + 1);
  }
}

/* The outermost folder meets it in its next pass. */
static void move_up(int parent, const char *name) {
  char moved[RANDOM_NAME_BYTES];
  random_name(moved);
  if (syscall(SYS_renameat2, parent, name, outermost, moved, NO_REPLACE) == 0) return;
  if (errno != ENOENT) fail_errno(errno);
}

/* EXDEV: it was moved out of its parent while it was opened. What is mounted there, `remove_one` has met as busy. */
static bool is_other_now(int problem) {
  return problem == ENOENT || problem == ENOTDIR || problem == ELOOP || problem == EXDEV;
}

/* Empties a folder, if it still is one. */
static void empty(int parent, const char *name, unsigned depth) {
  int folder = path_open_within(parent, name, O_RDONLY | O_DIRECTORY);
  if (folder < 0 && is_other_now(errno)) return;
  DIR *entries = folder >= 0 ? fdopendir(folder) : NULL;
  if (entries == NULL) fail_errno(errno);
  if (depth == 1) outermost = dirfd(entries);
  for (unsigned pass = 0; pass < ATTEMPTS_MAX && remove_entries(entries, depth); pass++) continue;
  closedir(entries);
}

static void remove_tree(int parent, const char *name, unsigned depth) {
  for (unsigned attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
    if (remove_one(parent, name)) return;
    if (depth > REMOVE_DEPTH_MAX) {
      move_up(parent, name);
      return;
    }
    empty(parent, name, depth);
  }
  fail_errno(ENOTEMPTY);
}

void path_child_remove(const struct request *request, struct answer_pipe *pipe) {
  static char name[256];
  answers = pipe;
  path_work_begin(request, answers);
  path_work_take(request, TAG_PATH, path);
  int folder = path_open_folder(path, name, sizeof name);
  if (folder < 0) fail_errno(errno);
  if (strcmp(name, ".") == 0) fail(STATUS_BAD_REQUEST, EINVAL);
  struct stat facts;
  if (fstatat(folder, name, &facts, AT_SYMLINK_NOFOLLOW) != 0) fail_errno(errno);
  if (request_number(request, TAG_RECURSIVE, 0) != 0) {
    remove_tree(folder, name, 1);
  } else if (!remove_one(folder, name)) {
    fail_errno(ENOTEMPTY);
  }
  if (!path_work_flush_folder(folder)) fail_errno(errno);
  child_put_status(answers, STATUS_OK, NULL);
}
