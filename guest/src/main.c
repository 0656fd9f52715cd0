/*
 * perdure-guest: PID 1 of a Perdure VM.
 *
 * As PID 1 it boots the machine (boot.c) and serves the guest link for ever. With --serve-fd it
 * serves an inherited descriptor on an ordinary host, for tests, and ends with it.
 *
 * Invariants:
 *  A1 One thread, one loop. Nothing a host or a workload does makes it wait: whatever may block
 *     runs in a child (job.h).
 *  A2 Every signal is blocked; SIGCHLD is read from a descriptor. Every orphan is reaped.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent.h"
#include "boot.h"
#include "cgroup.h"
#include "clock_source.h"
#include "freezer.h"
#include "hook_folder.h"
#include "job.h"
#include "link.h"
#include "loop.h"
#include "operation.h"
#include "outbound.h"
#include "process.h"
#include "session.h"
#include "terminal.h"
#include "text_file.h"

#define REAP_PER_TURN 256
#define DRAFTS_MS 500u /* for children to take away unfinished files */
#define GIVE_UP_MS 3000u

struct agent agent = {.run_folder = "/run/perdure", .hook_folder = "/etc/perdure/resume.d"};

static struct source signals;
static bool more_to_reap;
static bool is_over; /* tests only */

static void reap(void) {
  more_to_reap = true;
  for (int i = 0; i < REAP_PER_TURN; i++) {
    int wait_status = 0;
    pid_t pid = waitpid(-1, &wait_status, WNOHANG);
    if (pid <= 0) {
      more_to_reap = false;
      return;
    }
    if (!process_reaped(pid, wait_status)) job_reaped(pid, wait_status);
  }
}

static void signal_ready(struct source *source, uint32_t events) {
  (void)events;
  struct signalfd_siginfo info;
  while (read(source->fd, &info, sizeof info) == (ssize_t)sizeof info) {
    if (info.ssi_signo != SIGCHLD) is_over = true;
  }
  reap();
}

static bool open_signals(void) {
  sigset_t all;
  sigfillset(&all);
  /* A fault must end the process: blocked, it would kill without a trace all the same. */
  int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP};
  for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) sigdelset(&all, faults[i]);
  sigprocmask(SIG_SETMASK, &all, NULL);
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGCHLD);
  if (agent.is_test) {
    sigaddset(&wanted, SIGTERM);
    sigaddset(&wanted, SIGINT);
  }
  source_open(&signals, signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK), signal_ready);
  return source_watch(&signals, EPOLLIN);
}

static void host_is_gone(void) { is_over = true; }

static void serve(void) {
  while (!is_over) {
    if (more_to_reap) reap();
    bool more = link_pump();
    if (!is_over) loop_turn(more || more_to_reap);
  }
}

/* What operations use that must neither wait nor cost much after a wake. */
static void open_files(void) {
  identity_open();
  hook_folder_open();
  stats_open();
  activity_open();
  timers_open();
  terminals_open();
  clock_source_open();
}

static int run_machine(void) {
  int port = boot();
  open_files();
  memory_open();
  bool is_open = clock_open() && loop_open() && open_signals() && freezer_open();
  if (!is_open || !link_open(port, NULL)) {
    boot_failed("cannot start the loop: %s", strerror(errno));
  }
  outbound_open();
  fprintf(stderr, AGENT_LINE " is ready\n");
  serve();
  boot_failed("the loop ended");
}

/* Tests. */

static void kill_one(pid_t pid, void *context) {
  (void)context;
  kill(pid, SIGKILL);
}

/* Ends everything that was started, also what left its session: this process is its reaper. */
static void end_everything(void) {
  uint64_t began = monotonic_ns();
  if (cgroup_hooks() >= 0) cgroup_kill(cgroup_hooks());
  for (;;) {
    uint64_t passed_ms = (monotonic_ns() - began) / 1000000;
    processes_kill_all();
    if (passed_ms > DRAFTS_MS) children_each(getpid(), kill_one, NULL);
    pid_t pid = waitpid(-1, NULL, WNOHANG);
    if (pid < 0 || passed_ms > GIVE_UP_MS) break;
    if (pid == 0) usleep(2000);
  }
  cgroups_remove();
}

static int run_test(int fd, const char *cgroup, bool has_network) {
  agent.is_test = true;
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  /* Without 0 to 2 open, pipes would take their numbers. */
  for (int null = open("/dev/null", O_RDWR); null >= 0; null = open("/dev/null", O_RDWR)) {
    if (null > 2) {
      close(null);
      break;
    }
  }
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  text_file_read_at(AT_FDCWD, "/proc/sys/kernel/random/boot_id", agent.boot_id,
                    sizeof agent.boot_id);
  agent.boot_id[strcspn(agent.boot_id, "\n")] = '\0';
  if (cgroup != NULL && geteuid() == 0 && !cgroups_open(cgroup, false)) {
    fprintf(stderr, "perdure-guest: cannot make cgroups under \"%s\": %s\n", cgroup,
            strerror(errno));
    return 1;
  }
  open_files();
  if (!loop_open() || !open_signals() || !link_open(fd, host_is_gone)) {
    fprintf(stderr, "perdure-guest: cannot serve descriptor %d: %s\n", fd, strerror(errno));
    return 1;
  }
  freezer_open();
  if (has_network) outbound_open();
  serve();
  end_everything();
  return 0;
}

static int usage(void) {
  fprintf(stderr,
          "perdure-guest: PID 1 of a Perdure VM. Not for use by hand.\n"
          "  perdure-guest --version\n"
          "  perdure-guest --serve-fd N [--cgroup DIR] [--run DIR] [--network own]   (tests)\n");
  return 2;
}

static int run_by_hand(int argc, char **argv) {
  const char *cgroup = NULL;
  const char *run = NULL;
  bool has_network = false;
  long fd = -1;
  if (argc == 2 && strcmp(argv[1], "--version") == 0) {
    printf(AGENT_LINE "\n");
    return 0;
  }
  for (int i = 1; i + 1 < argc; i += 2) {
    if (strcmp(argv[i], "--serve-fd") == 0) {
      fd = strtol(argv[i + 1], NULL, 10);
    } else if (strcmp(argv[i], "--cgroup") == 0) {
      cgroup = argv[i + 1];
    } else if (strcmp(argv[i], "--run") == 0) {
      run = argv[i + 1];
    } else if (strcmp(argv[i], "--network") == 0) {
      has_network = true;
    } else {
      return usage();
    }
  }
  if (argc < 3 || argc % 2 == 0 || fd < 0) return usage();
  static char hooks[4096];
  agent.run_folder = run != NULL ? run : "/nonexistent";
  snprintf(hooks, sizeof hooks, "%s/resume.d", agent.run_folder);
  agent.hook_folder = hooks;
  return run_test((int)fd, cgroup, has_network);
}

int main(int argc, char **argv) {
  /* The kernel passes unknown words of its command line on as arguments. */
  return getpid() == 1 ? run_machine() : run_by_hand(argc, argv);
}
