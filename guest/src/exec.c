/*
 * EXEC: a program in a cgroup, session and user of its own.
 *
 * Everything that may block (passwd, the working folder, the program file) happens in the child. It
 * reports a failure on a pipe that a successful exec closes, so the parent answers when the outcome
 * is known and never before. Where the workload is frozen the child stops in its cgroup and the
 * answer follows the thaw.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent.h"
#include "cgroup.h"
#include "errno_name.h"
#include "job.h"
#include "operation.h"
#include "path.h"
#include "process.h"
#include "stream.h"
#include "terminal.h"
#include "user.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define FILES_SOFT 1024u
#define FILES_HARD 524288u
#define DEFAULT_TERM "xterm-256color"
#define ENV_DEFAULTS 6
/* A report must fit into one atomic write of a pipe. */
#define MESSAGE_MAX 2048
#define QUOTED_MAX 1024

/*
 * What the child needs: pipe ends by index 0 to 2 (a terminal: all the same), the cgroup's procs file, the
 * report.
 */
struct launch {
  int stdio[3];
  bool on_terminal;
  int procs;
  int report;
};

static const char *check_request(const struct request *request) {
  size_t count = 0;
  struct bytes value;
  struct field_reader list = request_list(request);
  while (request_each(&list, TAG_ARGV, &value)) {
    if (count++ == 0 && value.length == 0) return "argv begins with an empty string";
  }
  if (count == 0 || count > ARGV_MAX) return "argv must have 1 to 1024 strings";
  list = request_list(request);
  while (request_each(&list, TAG_ENV, &value)) {
    const uint8_t *equals = memchr(value.at, '=', value.length);
    if (equals == NULL || equals == value.at) return "env must be NAME=value";
  }
  if (request_has(request, TAG_CWD)) {
    const char *problem = path_check(request->slice[TAG_CWD]);
    if (problem != NULL) return problem;
  }
  uint64_t log_bytes = request_number(request, TAG_LOG_BYTES, LOG_BYTES_DEFAULT);
  if (log_bytes < LOG_BYTES_MIN || log_bytes > LOG_BYTES_MAX) {
    return "logBytes must be 4 KiB to 16 MiB";
  }
  bool has_size = request_has(request, TAG_ROWS) || request_has(request, TAG_COLUMNS);
  return has_size ? terminal_check(request) : NULL;
}

/* The child. */

static void fail(const struct launch *launch, enum status status, const char *message) {
  struct answer_pipe pipe = {launch->report};
  child_put_status(&pipe, status, message);
  _exit(127);
}

static void fail_errno(const struct launch *launch, const char *action, int problem) {
  char message[MESSAGE_MAX];
  snprintf(message, sizeof message, "Cannot %s: %s", action, strerror(problem));
  fail(launch, STATUS_INTERNAL, message);
}

/* Strings of one tag as a vector, with room for `extra` more. NULL without memory. */
static char **copy_strings(const struct request *request, enum tag tag, size_t extra,
                           size_t *count) {
  size_t total = 0;
  struct bytes value;
  struct field_reader list = request_list(request);
  while (request_each(&list, tag, &value)) total++;
  char **vector = calloc(total + extra + 1, sizeof *vector);
  if (vector == NULL) return NULL;
  *count = 0;
  list = request_list(request);
  while (request_each(&list, tag, &value)) {
    char *copy = malloc(value.length + 1);
    if (copy == NULL) return NULL;
    bytes_to_string(value, copy, value.length + 1);
    vector[(*count)++] = copy;
  }
  return vector;
}

static const char *env_value(char **env, const char *name) {
  size_t length = strlen(name);
  for (; *env != NULL; env++) {
    if (strncmp(*env, name, length) == 0 && (*env)[length] == '=') return *env + length + 1;
  }
  return NULL;
}

/* The last one is for terminals only. */
static char **make_env(const struct request *request, const struct user *user, bool on_terminal) {
  size_t count = 0;
  char **env = copy_strings(request, TAG_ENV, ENV_DEFAULTS, &count);
  if (env == NULL) return NULL;
  const char *defaults[ENV_DEFAULTS][2] = {{"HOME", user->home},
                                           {"USER", user->name},
                                           {"LOGNAME", user->name},
                                           {"SHELL", user->shell},
                                           {"PATH", DEFAULT_PATH},
                                           {"TERM", DEFAULT_TERM}};
  for (size_t i = 0; i < ENV_DEFAULTS - (on_terminal ? 0 : 1); i++) {
    if (env_value(env, defaults[i][0]) != NULL) continue;
    size_t size = strlen(defaults[i][0]) + strlen(defaults[i][1]) + 2;
    char *entry = malloc(size);
    if (entry == NULL) return NULL;
    snprintf(entry, size, "%s=%s", defaults[i][0], defaults[i][1]);
    env[count++] = entry;
  }
  return env;
}

/* Tries one file; keeps the more telling of two problems, as a shell does. */
static void try_exec(const char *file, char **argv, char **env, int *problem) {
  execve(file, argv, env);
  if (errno == EACCES || (errno != ENOENT && errno != ENOTDIR)) *problem = errno;
}

static int exec_by_name(char **argv, char **env) {
  int problem = ENOENT;
  if (strchr(argv[0], '/') != NULL) {
    execve(argv[0], argv, env);
    return errno;
  }
  const char *folder = env_value(env, "PATH");
  while (folder != NULL) {
    size_t length = strcspn(folder, ":");
    char file[PATH_BYTES_MAX + 1];
    int size = length > 0 ? snprintf(file, sizeof file, "%.*s/%s", (int)length, folder, argv[0])
                          : snprintf(file, sizeof file, "./%s", argv[0]);
    if (size > 0 && (size_t)size < sizeof file) try_exec(file, argv, env, &problem);
    folder = folder[length] == ':' ? folder + length + 1 : NULL;
  }
  return problem;
}

static void reset_limits(void) {
  struct rlimit files = {FILES_SOFT, FILES_HARD};
  setrlimit(RLIMIT_NOFILE, &files);
  int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  if (write(fd, "0", 1) != 1) { /* stays protected: a pity, not a failure */
  }
  close(fd);
}

static void take_folder(const struct launch *launch, const struct request *request,
                        const struct user *user) {
  char folder[PATH_BYTES_MAX + 1];
  if (!request_has(request, TAG_CWD)) {
    if (chdir(user->home) != 0 && chdir("/") != 0) fail_errno(launch, "enter \"/\"", errno);
    return;
  }
  bytes_to_string(request->slice[TAG_CWD], folder, sizeof folder);
  if (chdir(folder) == 0) return;
  int problem = errno;
  char message[MESSAGE_MAX];
  snprintf(message, sizeof message, "Cannot enter \"%.*s\": %s", QUOTED_MAX, folder,
           strerror(problem));
  fail(launch, path_status(problem), message);
}

static _Noreturn void become_program(const struct launch *launch, const struct request *request) {
  int keep[] = {launch->stdio[0], launch->stdio[1], launch->stdio[2], launch->procs,
                launch->report};
  child_prepare(keep, sizeof keep / sizeof keep[0]);
  if (launch->procs >= 0 && write(launch->procs, "0", 1) != 1) {
    fail_errno(launch, "enter the cgroup", errno);
  }
  setsid();
  umask(022);
  if (!agent.is_test) reset_limits();

  static struct user user;
  struct bytes name = request->slice[TAG_USER];
  enum status found = user_load(request_has(request, TAG_USER) ? name : (struct bytes){0}, &user);
  if (found != STATUS_OK) fail(launch, found, "There is no such user");
  if (launch->on_terminal && !terminal_take(launch->stdio[0], user.uid)) {
    fail_errno(launch, "take the terminal", errno);
  }
  /* The pipes become the user's, so that opening /dev/stdout again works for everyone. */
  for (int i = 0; i < 3 && !launch->on_terminal; i++) {
    if (launch->stdio[i] >= 0 && fchown(launch->stdio[i], user.uid, user.gid) != 0) continue;
  }
  for (int i = 0; i < 3; i++) {
    int from = launch->stdio[i] >= 0 ? launch->stdio[i] : open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (from < 0 || dup2(from, i) < 0) fail_errno(launch, "set up stdio", errno);
  }
  if (!user_become(&user)) fail_errno(launch, "become the user", errno);
  take_folder(launch, request, &user);

  size_t count = 0;
  char **argv = copy_strings(request, TAG_ARGV, 0, &count);
  char **env = make_env(request, &user, launch->on_terminal);
  if (argv == NULL || env == NULL) fail(launch, STATUS_EXEC_FAILED, "ENOMEM: No memory");
  signal(SIGPIPE, SIG_DFL);
  int problem = exec_by_name(argv, env);
  char message[MESSAGE_MAX];
  snprintf(message, sizeof message, "%s: Cannot run \"%.*s\": %s", errno_name(problem),
           QUOTED_MAX, argv[0], strerror(problem));
  fail(launch, STATUS_EXEC_FAILED, message);
  _exit(127);
}

/* The parent. */

static void exec_stream_closed(struct stream *stream) {
  struct process *process = stream->owner;
  process->starter = NULL; /* the program starts all the same; PROCESSES tells of it */
}

static const struct stream_handler STARTER = {.close = exec_stream_closed};

static void start_failed(struct process *process, struct bytes report) {
  struct stream *stream = process->starter;
  process->starter = NULL;
  if (stream != NULL) {
    uint32_t id = stream->id;
    stream_close(stream);
    answer_send_payload(FRAME_RESPONSE, id, report);
  }
  timer_disarm(&process->timeout);
  process_hide(process);
}

/* Closed without a word: the program runs. */
static void start_reported(struct source *source, uint32_t events) {
  (void)events;
  struct process *process = CONTAINER_OF(source, struct process, start);
  static uint8_t report[PAYLOAD_MAX];
  ssize_t got = read(source->fd, report, sizeof report);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  source_close(source);
  if (got >= 6) {
    start_failed(process, (struct bytes){report + 4, (size_t)got - 4});
    return;
  }
  struct stream *stream = process->starter;
  process->starter = NULL;
  if (stream != NULL) {
    uint32_t id = stream->id;
    stream_close(stream);
    struct field_writer *answer = answer_begin(STATUS_OK);
    field_put_number(answer, TAG_PROCESS, process->id);
    field_put_number(answer, TAG_PID, (uint64_t)process->pid);
    answer_send(FRAME_RESPONSE, id);
  }
  process_began(process);
}

static void note_request(struct process *process, const struct request *request) {
  struct bytes user = request->slice[TAG_USER];
  if (!request_has(request, TAG_USER) || user.length == 0) {
    strcpy(process->user, "root");
  } else if (!bytes_to_string(user, process->user, sizeof process->user)) {
    process->user[0] = '\0'; /* too long to exist; the child will say so */
  }
  struct field_writer argv;
  field_writer_open(&argv, process->argv, sizeof process->argv);
  struct bytes value;
  struct field_reader list = request_list(request);
  while (request_each(&list, TAG_ARGV, &value) && !argv.overflowed) {
    field_put_bytes(&argv, TAG_ARGV, value.at, value.length);
  }
  process->argv_length = argv.length;
}

/* pipe2 with the agent's end nonblocking; `ours` is 0 (it reads) or 1 (it writes). */
static bool make_pipe(int ends[2], int ours) {
  if (pipe2(ends, O_CLOEXEC) != 0) return false;
  fcntl(ends[ours], F_SETFL, O_NONBLOCK);
  return true;
}

static void close_all(const int *fds, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (fds[i] >= 0) close(fds[i]);
  }
}

/* Ends by [0] what is read and [1] what is written, of which the agent has out[0], err[0] and in[1]. */
struct stdio {
  int in[2];
  int out[2];
  int err[2];
};

static bool open_pipes(struct stdio *stdio, bool with_input) {
  return make_pipe(stdio->out, 0) && make_pipe(stdio->err, 0) &&
         (!with_input || make_pipe(stdio->in, 1));
}

/* One terminal for all: the child's end once, the agent's once for each way. */
static bool open_terminal(struct stdio *stdio, const struct request *request) {
  if (!terminal_open(request, &stdio->out[0], &stdio->out[1])) return false;
  stdio->in[1] = fcntl(stdio->out[0], F_DUPFD_CLOEXEC, 3);
  return stdio->in[1] >= 0;
}

static bool start(struct process *process, const struct request *request) {
  struct stdio stdio = {{-1, -1}, {-1, -1}, {-1, -1}};
  int *in = stdio.in, *out = stdio.out, *err = stdio.err, report[2] = {-1, -1};
  int procs = -1;
  bool on_terminal = process->has_terminal;
  bool ready = (on_terminal ? open_terminal(&stdio, request)
                            : open_pipes(&stdio, request_number(request, TAG_STDIN, 0) != 0)) &&
               make_pipe(report, 0);
  if (ready && cgroup_workload() >= 0) {
    process->cgroup = cgroup_open_process(process->id);
    if (process->cgroup >= 0) procs = openat(process->cgroup, "cgroup.procs", O_WRONLY | O_CLOEXEC);
    ready = procs >= 0;
  }
  pid_t pid = ready ? fork() : -1;
  if (pid == 0) {
    struct launch launch = {{in[0], out[1], err[1]}, on_terminal, procs, report[1]};
    if (on_terminal) launch.stdio[0] = launch.stdio[2] = out[1];
    become_program(&launch, request);
  }
  int problem = errno;
  int childs[] = {in[0], out[1], err[1], report[1], procs};
  close_all(childs, sizeof childs / sizeof childs[0]);
  if (pid < 0) {
    int ours[] = {in[1], out[0], err[0], report[0]};
    close_all(ours, sizeof ours / sizeof ours[0]);
    process->reaped = true;
    errno = problem;
    return false;
  }
  process->pid = pid;
  source_open(&process->start, report[0], start_reported);
  bool watched = process_watch(process, out[0], err[0], in[1]);
  watched = source_watch(&process->start, EPOLLIN) && watched;
  if (watched) return true;
  source_close(&process->output[0]);
  source_close(&process->output[1]);
  source_close(&process->start);
  process_kill_tree(process);
  errno = ENOMEM;
  return false;
}

void operation_exec(uint32_t id, const struct request *request) {
  const char *problem = check_request(request);
  if (problem != NULL) {
    answer_status(id, STATUS_BAD_REQUEST, problem);
    return;
  }
  if (agent.shutting_down) {
    answer_status(id, STATUS_CANCELLED, "The machine is shutting down");
    return;
  }
  if (processes_running() >= PROCESSES_RUNNING_MAX) {
    answer_status(id, STATUS_TOO_MANY, "512 processes are running");
    return;
  }
  struct stream *stream = stream_open(id, OP_EXEC, &STARTER, NULL);
  if (stream == NULL) return;
  size_t log_bytes = (size_t)request_number(request, TAG_LOG_BYTES, LOG_BYTES_DEFAULT);
  struct process *process = process_create(log_bytes);
  if (process == NULL) {
    stream_answer(stream, STATUS_TOO_MANY, "No room for another process");
    return;
  }
  stream->owner = process;
  note_request(process, request);
  process->has_terminal = request_has(request, TAG_ROWS);
  if (!start(process, request)) {
    char message[96];
    snprintf(message, sizeof message, "Cannot start a process: %s", strerror(errno));
    stream_answer(stream, STATUS_EXEC_FAILED, message);
    process_hide(process);
    return;
  }
  process->starter = stream;
  uint64_t timeout_ms = request_number(request, TAG_TIMEOUT_MS, 0);
  if (timeout_ms > 0) timer_arm(&process->timeout, timeout_ms);
}
