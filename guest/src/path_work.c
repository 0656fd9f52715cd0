/* See path_work.h. */
#include "path_work.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "path.h"
#include "user.h"

void path_work_begin(const struct request *request, struct answer_pipe *answers) {
  static struct user user;
  struct bytes name = request->slice[TAG_USER];
  enum status found = user_load(request_has(request, TAG_USER) ? name : (struct bytes){0}, &user);
  if (found != STATUS_OK) {
    child_put_status(answers, found, "There is no such user");
    _exit(0);
  }
  if (!user_become(&user)) {
    child_put_errno(answers, "become the user", errno);
    _exit(0);
  }
}

void path_work_take(const struct request *request, enum tag tag, char *path) {
  bytes_to_string(request->slice[tag], path, PATH_BYTES_MAX + 1);
}

_Noreturn void path_work_fail(struct answer_pipe *answers, enum status status, const char *action,
                              const char *path, int problem) {
  static char message[3 * PATH_BYTES_MAX];
  path_message(message, sizeof message, action, path, problem);
  child_put_status(answers, status, message);
  _exit(0);
}

_Noreturn void path_work_fail_errno(struct answer_pipe *answers, const char *action,
                                    const char *path, int problem) {
  path_work_fail(answers, path_status(problem), action, path, problem);
}

bool path_work_flush_folder(int folder) {
  int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno == EACCES; /* nothing to be done */
  bool done = fsync(fd) == 0 || errno == EINVAL;
  int problem = errno;
  close(fd);
  errno = problem;
  return done;
}

static const char *kind_of(const struct stat *facts) {
  if (S_ISREG(facts->st_mode)) return "file";
  if (S_ISDIR(facts->st_mode)) return "directory";
  return S_ISLNK(facts->st_mode) ? "link" : "other";
}

void facts_put(struct field_writer *fields, const struct stat *facts) {
  field_put_string(fields, TAG_KIND, kind_of(facts));
  field_put_number(fields, TAG_SIZE, (uint64_t)facts->st_size);
  field_put_number(fields, TAG_MODE, facts->st_mode & 07777);
  field_put_number(fields, TAG_UID, facts->st_uid);
  field_put_number(fields, TAG_GID, facts->st_gid);
  uint64_t seconds = (uint64_t)facts->st_mtim.tv_sec;
  field_put_number(fields, TAG_MTIME_NS,
                   seconds * UINT64_C(1000000000) + (uint64_t)facts->st_mtim.tv_nsec);
}
