/* LIST_FOLDER. See path_child.h. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "attribute.h"
#include "path.h"
#include "path_child.h"
#include "path_work.h"
#include "record.h"

static char path[PATH_BYTES_MAX + 1];
static struct record_writer records;

static DIR *open_folder(struct answer_pipe *answers) {
  struct stat facts;
  int fd = path_open(AT_FDCWD, path, O_PATH);
  if (fd < 0 || fstat(fd, &facts) != 0) path_work_fail_errno(answers, "list", path, errno);
  if (!S_ISDIR(facts.st_mode)) {
    path_work_fail(answers, STATUS_PATH_NOT_FOLDER, "list", path, ENOTDIR);
  }
  int folder = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *entries = folder >= 0 ? fdopendir(folder) : NULL;
  if (entries == NULL) path_work_fail_errno(answers, "list", path, errno);
  return entries;
}

/* What is gone by now is left out; what may not be looked at is there, without facts. */
static void put_entry(int folder, const char *name) {
  struct stat facts;
  memset(&facts, 0, sizeof facts);
  if (fstatat(folder, name, &facts, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT) return;
  char target[PATH_BYTES_MAX + 1];
  ssize_t length = 0;
  if (S_ISLNK(facts.st_mode)) {
    length = readlinkat(folder, name, target, sizeof target - 1);
    if (length < 0) return; /* another thing by now */
  }
  struct field_writer fields;
  record_begin(&records, &fields);
  field_put_string(&fields, TAG_NAME, name);
  facts_put(&fields, &facts);
  if (S_ISREG(facts.st_mode) || S_ISDIR(facts.st_mode)) attributes_put(&fields, folder, name);
  if (S_ISLNK(facts.st_mode)) field_put_bytes(&fields, TAG_TARGET, target, (size_t)length);
  record_end(&records, &fields);
}

void path_child_list(const struct request *request, struct answer_pipe *answers, int bytes) {
  path_work_begin(request, answers);
  path_work_take(request, TAG_PATH, path);
  DIR *entries = open_folder(answers);
  record_writer_open(&records, bytes);
  child_put_status(answers, STATUS_OK, NULL);
  for (;;) {
    errno = 0;
    struct dirent *entry = readdir(entries);
    if (entry == NULL) break;
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    put_entry(dirfd(entries), entry->d_name);
    if (records.is_unread) _exit(0);
  }
  int problem = errno;
  record_flush(&records);
  if (problem != 0) path_work_fail_errno(answers, "list", path, problem);
  child_put_status(answers, STATUS_OK, NULL);
}
