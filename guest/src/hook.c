/*
 * HOOKS: runs the programs in /etc/perdure/resume.d, one after another. A child does it all, unless
 * there is known to be nothing to do, and enforces the deadline; whatever is left in the hooks cgroup
 * at the deadline is killed.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent.h"
#include "cgroup.h"
#include "hook_folder.h"
#include "job.h"
#include "loop.h"
#include "operation.h"
#include "text_file.h"

#define HOOKS_MAX 128
#define DEADLINE_MS 10000u
#define ANSWER_GRACE_MS 2000u /* for killing and reporting after the deadline */
#define LOOK_MS 10
#define ENTRY_BYTES 400u /* of a hook without its output */
#define HOOK_PATH "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static bool hooks_are_running;
static uint64_t deadline_ns; /* one for both: a hook killed by the agent must not look in time to the child */
static unsigned names_seen;  /* in the child */
static struct timer kill_left;

struct hook {
  char *path;
  uint8_t output[HOOK_OUTPUT_MAX]; /* a ring */
  uint64_t output_total;
};

static int is_hook(const struct dirent *entry) {
  char path[PATH_BYTES_MAX + 1];
  struct stat facts;
  if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) return 0;
  names_seen++;
  int length = snprintf(path, sizeof path, "%s/%s", agent.hook_folder, entry->d_name);
  return length > 0 && (size_t)length < sizeof path && lstat(path, &facts) == 0 &&
         S_ISREG(facts.st_mode) && (facts.st_mode & 0111) != 0;
}

static int by_bytes(const struct dirent **left, const struct dirent **right) {
  return strcmp((*left)->d_name, (*right)->d_name);
}

static _Noreturn void become_hook(const char *path, int output) {
  static const char *const group = "0";
  char generation[64];
  snprintf(generation, sizeof generation, "PERDURE_GENERATION=%" PRIu64, agent.generation);
  char *argv[] = {(char *)path, NULL};
  char *env[] = {generation, HOOK_PATH, NULL};
  if (cgroup_hooks() >= 0 && !text_file_write_at(cgroup_hooks(), "cgroup.procs", group)) _exit(126);
  int in = open("/dev/null", O_RDONLY);
  setsid();
  umask(022);
  signal(SIGPIPE, SIG_DFL);
  if (!agent.is_test) text_file_write_at(AT_FDCWD, "/proc/self/oom_score_adj", "0");
  if (in < 0 || dup2(in, 0) < 0 || dup2(output, 1) < 0 || dup2(output, 2) < 0 || chdir("/") != 0) {
    _exit(126);
  }
  child_prepare(NULL, 0);
  execve(path, argv, env);
  dprintf(2, "Cannot run: %s\n", strerror(errno));
  _exit(127);
}

static void take_output(struct hook *hook, int fd) {
  uint8_t chunk[HOOK_OUTPUT_MAX];
  ssize_t got;
  while ((got = read(fd, chunk, sizeof chunk)) > 0) {
    for (ssize_t i = 0; i < got; i++) {
      hook->output[hook->output_total++ % HOOK_OUTPUT_MAX] = chunk[i];
    }
  }
}

static void kill_hook(pid_t pid) {
  kill(-pid, SIGKILL);
  kill(pid, SIGKILL);
  if (cgroup_hooks() >= 0) cgroup_kill(cgroup_hooks());
}

/* Runs one hook to its end or the deadline. False where it could not be started. */
static bool run_hook(struct hook *hook, int *wait_status) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return false;
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  pid_t pid = fork();
  if (pid == 0) become_hook(hook->path, ends[1]);
  close(ends[1]);
  bool killed = false;
  while (pid > 0 && waitpid(pid, wait_status, WNOHANG) == 0) {
    struct pollfd output = {.fd = ends[0], .events = POLLIN, .revents = 0};
    /* A pipe that was closed is ready all the time: then only the clock is waited for. */
    if (poll(&output, 1, LOOK_MS) > 0 && (output.revents & POLLIN) == 0) poll(NULL, 0, LOOK_MS);
    take_output(hook, ends[0]);
    if (!killed && monotonic_ns() >= deadline_ns) {
      kill_hook(pid);
      killed = true;
    }
  }
  take_output(hook, ends[0]);
  close(ends[0]);
  return pid > 0;
}

static void put_hook(struct field_writer *fields, const struct hook *hook, bool started,
                     int wait_status, size_t output_max) {
  size_t opened = field_open(fields, TAG_HOOK);
  field_put_string(fields, TAG_PATH, hook->path);
  if (!started) {
    field_put_number(fields, TAG_EXIT_CODE, 127);
  } else if (WIFSIGNALED(wait_status)) {
    field_put_number(fields, TAG_SIGNAL, (uint64_t)WTERMSIG(wait_status));
  } else {
    field_put_number(fields, TAG_EXIT_CODE, (uint64_t)WEXITSTATUS(wait_status));
  }
  uint8_t last[HOOK_OUTPUT_MAX];
  size_t length = hook->output_total < output_max ? (size_t)hook->output_total : output_max;
  for (size_t i = 0; i < length; i++) {
    last[i] = hook->output[(hook->output_total - length + i) % HOOK_OUTPUT_MAX];
  }
  field_put_bytes(fields, TAG_BYTES, last, length);
  field_close(fields, opened);
}

static void run_hooks(const struct request *request, struct answer_pipe *pipe) {
  (void)request;
  static uint8_t buffer[PAYLOAD_MAX - 2];
  static struct hook hook;
  struct dirent **entries = NULL;
  int count = scandir(agent.hook_folder, &entries, is_hook, by_bytes);
  if (count < 0 && errno != ENOENT && errno != ENOTDIR) {
    child_put_errno(pipe, "list the hooks", errno);
    return;
  }
  if (count > HOOKS_MAX) {
    child_put_status(pipe, STATUS_TOO_MANY, "There are more than 128 hooks");
    return;
  }
  struct field_writer fields;
  field_writer_open(&fields, buffer, sizeof buffer);
  if (count >= 0) field_put_number(&fields, TAG_SIZE, names_seen);
  bool in_time = true;
  for (int i = 0; i < count; i++) {
    static char path[PATH_BYTES_MAX + 1];
    in_time = monotonic_ns() < deadline_ns;
    if (!in_time) break;
    snprintf(path, sizeof path, "%s/%s", agent.hook_folder, entries[i]->d_name);
    hook.path = path;
    hook.output_total = 0;
    int wait_status = 0;
    bool started = run_hook(&hook, &wait_status);
    /* Every hook still to come keeps room for its entry. */
    size_t reserved = (size_t)(count - i) * ENTRY_BYTES;
    size_t left = fields.capacity - fields.length;
    size_t output_max = left > reserved ? left - reserved : 0;
    if (output_max > HOOK_OUTPUT_MAX) output_max = HOOK_OUTPUT_MAX;
    put_hook(&fields, &hook, started, wait_status, output_max);
    in_time = monotonic_ns() < deadline_ns;
  }
  child_put(pipe, in_time ? STATUS_OK : STATUS_DEADLINE_EXCEEDED, &fields);
}

static void hooks_done(enum status status, struct bytes fields) {
  static struct request answer;
  const char *why = NULL;
  hooks_are_running = false;
  hook_folder_listed(status == STATUS_OK &&
                     request_decode_fields(fields, &answer, &why) == STATUS_OK &&
                     request_has(&answer, TAG_SIZE) && answer.number[TAG_SIZE] == 0);
}

static void kill_what_is_left(struct timer *timer) {
  (void)timer;
  hooks_are_running = false;
  if (cgroup_hooks() >= 0) cgroup_kill(cgroup_hooks());
}

void operation_hooks(uint32_t stream, const struct request *request) {
  if (hooks_are_running) {
    answer_status(stream, STATUS_TOO_MANY, "The hooks are running already");
    return;
  }
  if (hook_folder_is_empty()) {
    answer_status(stream, STATUS_OK, NULL);
    return;
  }
  uint64_t deadline_ms = request_number(request, TAG_DEADLINE_MS, DEADLINE_MS);
  struct job_plan plan = {.work = run_hooks,
                          .deadline_ms = deadline_ms + ANSWER_GRACE_MS,
                          .keep_running = true,
                          .keep_cgroups = true,
                          .after = hooks_done};
  hooks_are_running = true;
  deadline_ns = monotonic_ns() + deadline_ms * UINT64_C(1000000);
  if (kill_left.fire == NULL) timer_open(&kill_left, false, kill_what_is_left);
  timer_arm(&kill_left, deadline_ms);
  job_run(stream, request, &plan);
}
