/*
 * GENERATION and IDENTITY: what the host tells the guest about itself after a resume.
 *
 * A generation's files are put in place by rename. An identity's are written over where they lie: all
 * programs are frozen, and a VM that dies meanwhile was not let out and is made again. Neither is done in
 * a child: after a wake a fork costs more than all else. What hangs on a disk or a mount that somebody
 * inside has put there keeps everybody waiting, but then nobody is waiting for anything else, and the host
 * gives up.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "agent.h"
#include "errno_name.h"
#include "operation.h"
#include "path.h"
#include "random_name.h"
#include "stream.h"
#include "text_file.h"

#define BOOT_ID "/proc/sys/kernel/random/boot_id"
#define PROC_MAGIC 0x9fa0
#define HOSTNAME_MAX 64u

/* Held from the start: whatever is mounted over its path later, this tmpfs never makes us wait. */
static int run_folder = -1;

/*
 * A file of the run folder that each GENERATION replaces. What can be done ahead of time is: the next one
 * is made with room for its content, and the one that is replaced stays open, so that after a wake there
 * is only writing and renaming to do.
 */
struct told_file {
  const char *name;
  off_t room;
  int next;
  char draft[RANDOM_NAME_BYTES]; /* name of `next` */
  int current;
  int previous;
};
static struct told_file report_file = {"resume.json", 8192, -1, "", -1, -1};
static struct told_file generation_file = {"generation", 1, -1, "", -1, -1};

static void close_told(int *fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

static void make_ready(struct told_file *file) {
  close_told(&file->previous);
  if (file->next >= 0) return;
  file->next = text_file_draft_at(run_folder, file->draft, 0644);
  if (file->next >= 0) fallocate(file->next, FALLOC_FL_KEEP_SIZE, 0, file->room);
}

void generation_make_ready(void) {
  make_ready(&report_file);
  make_ready(&generation_file);
}

void identity_open(void) {
  run_folder = open(agent.run_folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (!agent.is_test) generation_make_ready();
}

/* Whole or not at all; where nothing was made ahead, or it was taken away, by a file made now. */
static bool put_told(struct told_file *file, const void *bytes, size_t length) {
  int fd = file->next;
  file->next = -1;
  if (fd >= 0) {
    if (write(fd, bytes, length) == (ssize_t)length &&
        renameat(run_folder, file->draft, run_folder, file->name) == 0) {
      close_told(&file->previous);
      file->previous = file->current;
      file->current = fd;
      return true;
    }
    close(fd);
    unlinkat(run_folder, file->draft, 0);
  }
  return text_file_replace_at(run_folder, file->name, bytes, length, 0644);
}

/* Decimal and a newline, at the end of `buffer`: printf is much code to run for the first time. */
static char *put_decimal(char *end, uint64_t number) {
  *--end = '\n';
  do {
    *--end = (char)('0' + number % 10);
    number /= 10;
  } while (number > 0);
  return end;
}

void operation_generation(uint32_t stream, const struct request *request) {
  if (!request_has(request, TAG_GENERATION) || !request_has(request, TAG_JSON)) {
    answer_status(stream, STATUS_BAD_REQUEST, "generation or json is missing");
    return;
  }
  char buffer[32];
  char *end = buffer + sizeof buffer;
  char *number = put_decimal(end, request->number[TAG_GENERATION]);
  struct bytes json = request->slice[TAG_JSON];
  if (!put_told(&report_file, json.at, json.length) ||
      !put_told(&generation_file, number, (size_t)(end - number))) {
    char message[128];
    snprintf(message, sizeof message, "Cannot write the generation: %s", errno_name(errno));
    answer_status(stream, STATUS_INTERNAL, message);
    return;
  }
  agent.generation = request->number[TAG_GENERATION];
  answer_status(stream, STATUS_OK, NULL);
}

static bool holds_only(struct bytes text, const char *allowed) {
  for (size_t i = 0; i < text.length; i++) {
    if (text.at[i] == '\0' || strchr(allowed, text.at[i]) == NULL) return false;
  }
  return true;
}

static const char *check_identity(const struct request *request) {
  struct bytes name = request->slice[TAG_HOSTNAME];
  if (request_has(request, TAG_HOSTNAME) && (name.length == 0 || name.length > HOSTNAME_MAX)) {
    return "hostname must be 1 to 64 bytes";
  }
  struct bytes machine = request->slice[TAG_MACHINE_ID];
  if (request_has(request, TAG_MACHINE_ID) &&
      (machine.length != 32 || !holds_only(machine, "0123456789abcdef"))) {
    return "machineId must be 32 hexadecimal digits";
  }
  struct bytes boot = request->slice[TAG_BOOT_ID];
  if (request_has(request, TAG_BOOT_ID) &&
      (boot.length != 36 || !holds_only(boot, "0123456789abcdef-"))) {
    return "bootId must be 36 hexadecimal digits and dashes";
  }
  struct field_reader list = request_list(request);
  struct bytes value;
  while (request_each(&list, TAG_FILE, &value)) {
    static struct request file;
    const char *why = NULL;
    if (request_decode_fields(value, &file, &why) != STATUS_OK) return why;
    if (!request_has(&file, TAG_PATH)) return "A file has no path";
    if ((why = path_check(file.slice[TAG_PATH])) != NULL) return why;
  }
  return NULL;
}

/* One line into a file, in whatever is mounted in its place. */
static bool put_line(const char *folder_path, const char *name, struct bytes text) {
  char line[128];
  if (text.length + 2 > sizeof line) return false;
  memcpy(line, text.at, text.length);
  line[text.length] = '\n';
  line[text.length + 1] = '\0';
  int folder = open(folder_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return false;
  bool done = text_file_rewrite_at(folder, name, line, text.length + 1, 0644);
  if (!done && errno == EBUSY) {
    int fd = openat(folder, name, O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOFOLLOW);
    done = fd >= 0 && write(fd, line, text.length + 1) == (ssize_t)text.length + 1;
    if (fd >= 0) close(fd);
  }
  int problem = errno;
  close(folder);
  errno = problem;
  return done;
}

/* Whether what lies over the kernel's boot id is our file, as it is now. */
static bool is_bound(const char *source) {
  struct stat bound, file;
  return stat(BOOT_ID, &bound) == 0 && stat(source, &file) == 0 && bound.st_dev == file.st_dev &&
         bound.st_ino == file.st_ino;
}

/* The kernel's boot id cannot be set, so a file with another is bound over it, once. */
static bool put_boot_id(struct bytes boot_id) {
  if (!put_line(agent.run_folder, "boot_id", boot_id)) return false;
  if (agent.is_test) return true;
  struct statfs facts;
  char source[256];
  snprintf(source, sizeof source, "%s/boot_id", agent.run_folder);
  if (is_bound(source)) return true;
  /* Of a file that was replaced, or somebody else's: taken away first. */
  while (statfs(BOOT_ID, &facts) == 0 && facts.f_type != PROC_MAGIC) {
    if (umount2(BOOT_ID, MNT_DETACH) != 0) return false;
  }
  return mount(source, BOOT_ID, NULL, MS_BIND, NULL) == 0;
}

/* False where the identity is not whole; a missing folder is not a failure. */
static bool put_file(const struct request *file, char *path, size_t capacity) {
  char name[PATH_BYTES_MAX + 1];
  size_t prefix = 0;
  if (agent.is_test) prefix = (size_t)snprintf(path, capacity, "%s", agent.run_folder);
  if (!bytes_to_string(file->slice[TAG_PATH], path + prefix, capacity - prefix)) return false;
  int folder = path_open_folder(path, name, sizeof name);
  if (folder < 0) return errno == ENOENT || errno == ENOTDIR;
  struct bytes bytes = request_has(file, TAG_BYTES) ? file->slice[TAG_BYTES] : (struct bytes){0};
  mode_t mode = (mode_t)(request_number(file, TAG_MODE, 0644) & 07777);
  bool done = text_file_rewrite_at(folder, name, bytes.at, bytes.length, mode);
  int problem = errno;
  close(folder);
  errno = problem;
  return done;
}

static void answer_errno(uint32_t stream, const char *action, int problem) {
  char message[128];
  snprintf(message, sizeof message, "Cannot %s: %s", action, errno_name(problem));
  answer_status(stream, problem == ENOSPC ? STATUS_DISK_FULL : STATUS_INTERNAL, message);
}

void operation_identity(uint32_t stream, const struct request *request) {
  const char *problem = check_identity(request);
  if (problem != NULL) {
    answer_status(stream, STATUS_BAD_REQUEST, problem);
    return;
  }
  const char *etc = agent.is_test ? agent.run_folder : "/etc";
  struct bytes name = request->slice[TAG_HOSTNAME];
  if (request_has(request, TAG_HOSTNAME)) {
    if (!agent.is_test && sethostname((const char *)name.at, name.length) != 0) {
      answer_errno(stream, "set the host name", errno);
      return;
    }
    if (!put_line(etc, "hostname", name)) {
      answer_errno(stream, "write hostname", errno);
      return;
    }
  }
  if (request_has(request, TAG_MACHINE_ID) &&
      !put_line(etc, "machine-id", request->slice[TAG_MACHINE_ID])) {
    answer_errno(stream, "write machine-id", errno);
    return;
  }
  if (request_has(request, TAG_BOOT_ID) && !put_boot_id(request->slice[TAG_BOOT_ID])) {
    answer_errno(stream, "replace boot_id", errno);
    return;
  }
  struct field_reader list = request_list(request);
  struct bytes value;
  while (request_each(&list, TAG_FILE, &value)) {
    static struct request file;
    static char path[2 * PATH_BYTES_MAX];
    const char *why = NULL;
    request_decode_fields(value, &file, &why);
    if (put_file(&file, path, sizeof path)) continue;
    int failed = errno;
    static char message[3 * PATH_BYTES_MAX];
    path_message(message, sizeof message, "write", path, failed);
    answer_status(stream, path_status(failed), message);
    return;
  }
  answer_status(stream, STATUS_OK, NULL);
}
