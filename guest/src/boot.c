/* See boot.h. The root file system is root.c's part. */
#include "boot.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent.h"
#include "cgroup.h"
#include "loop.h"
#include "output_log.h"
#include "port.h"
#include "protocol.h"
#include "root.h"
#include "shutdown.h"
#include "text_file.h"

#define DEVICE_DEADLINE_MS 20000u
#define DEVICE_LOOK_US 5000u
#define COMPRESSED_MODULE 4
#define AGENT_FILES 65536u

void boot_failed(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "perdure-guest: boot failed: ");
  vfprintf(stderr, format, arguments);
  fprintf(stderr, "\n");
  va_end(arguments);
  sync();
  usleep(200000); /* a slow console still has the sentence to print */
  power_off();
}

static void mount_at(const char *type, const char *target, unsigned long flags, const char *data) {
  mkdir(target, 0755);
  if (mount(type, target, type, flags, data) != 0 && errno != EBUSY) {
    boot_failed("cannot mount %s at %s: %s", type, target, strerror(errno));
  }
}

/* stdin from nowhere, stdout and stderr to the console; never blocking on it. */
static void open_console(void) {
  int null = open("/dev/null", O_RDWR | O_NOCTTY);
  int console = open("/dev/console", O_WRONLY | O_NOCTTY | O_NONBLOCK);
  if (console < 0) console = dup(null);
  if (null > 0) dup2(null, 0);
  if (console >= 0) {
    dup2(console, 1);
    dup2(console, 2);
  }
  if (null > 2) close(null);
  if (console > 2) close(console);
}

static void mount_kernel_file_systems(void) {
  mount_at("devtmpfs", "/dev", MS_NOSUID, "mode=0755");
  open_console();
  mount_at("proc", "/proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
  mount_at("sysfs", "/sys", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
  mount_at("tmpfs", "/run", MS_NOSUID | MS_NODEV, "mode=0755");
  mount_at("cgroup2", "/sys/fs/cgroup", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
}

static bool ends_with(const char *text, const char *end) {
  size_t length = strlen(text);
  size_t end_length = strlen(end);
  return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

static void load_module(const char *path) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  bool compressed = ends_with(path, ".xz") || ends_with(path, ".gz") || ends_with(path, ".zst");
  if (fd < 0 || (syscall(SYS_finit_module, fd, "", compressed ? COMPRESSED_MODULE : 0) != 0 &&
                 errno != EEXIST)) {
    /* Not the end: what is missing may be built in. If not, the device never appears. */
    fprintf(stderr, "perdure-guest: cannot load %s: %s\n", path, strerror(errno));
  }
  if (fd >= 0) close(fd);
}

static void load_modules(void) {
  char *list = text_file_read("/modules.list", 64u << 10);
  if (list == NULL) return;
  char *rest = NULL;
  for (char *line = strtok_r(list, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
    if (line[0] != '\0' && line[0] != '#') load_module(line);
  }
  free(list);
}

static int wait_for_port(void) {
  uint64_t deadline_ns = monotonic_ns() + DEVICE_DEADLINE_MS * UINT64_C(1000000);
  int port;
  while ((port = port_open()) < 0) {
    if (errno != ENOENT) boot_failed("cannot open the port: %s", strerror(errno));
    if (monotonic_ns() > deadline_ns) boot_failed("there is no virtio port named %s", PORT_NAME);
    usleep(DEVICE_LOOK_US);
  }
  return port;
}

/* The value of NAME=value on the kernel's command line; false where it is not there. */
static bool kernel_option(const char *name, char *value, size_t capacity) {
  char line[4096] = "";
  text_file_read_at(AT_FDCWD, "/proc/cmdline", line, sizeof line);
  size_t length = strlen(name);
  char *rest = NULL;
  for (char *word = strtok_r(line, " \n", &rest); word != NULL;
       word = strtok_r(NULL, " \n", &rest)) {
    if (strncmp(word, name, length) != 0 || word[length] != '=') continue;
    snprintf(value, capacity, "%s", word + length + 1);
    return true;
  }
  return false;
}

static void wait_for_device(const char *device) {
  uint64_t deadline_ns = monotonic_ns() + DEVICE_DEADLINE_MS * UINT64_C(1000000);
  while (access(device, F_OK) != 0) {
    if (monotonic_ns() > deadline_ns) boot_failed("there is no %s", device);
    usleep(DEVICE_LOOK_US);
  }
}

static void open_root(void) {
  char device[256] = "none";
  kernel_option("perdure.root", device, sizeof device);
  if (strcmp(device, "none") == 0) {
    root_fill_initramfs();
    return;
  }
  wait_for_device(device);
  root_switch(device);
  open_console();
}

static void make_device_links(void) {
  mkdir("/dev/pts", 0755);
  mkdir("/dev/shm", 01777);
  mount_at("devpts", "/dev/pts", MS_NOSUID | MS_NOEXEC, "gid=5,mode=0620,ptmxmode=0666");
  mount_at("tmpfs", "/dev/shm", MS_NOSUID | MS_NODEV, "mode=1777");
  const char *links[][2] = {{"/proc/self/fd", "/dev/fd"},
                            {"/proc/self/fd/0", "/dev/stdin"},
                            {"/proc/self/fd/1", "/dev/stdout"},
                            {"/proc/self/fd/2", "/dev/stderr"}};
  for (size_t i = 0; i < sizeof links / sizeof links[0]; i++) {
    if (symlink(links[i][0], links[i][1]) != 0 && errno != EEXIST) {
      fprintf(stderr, "perdure-guest: cannot make %s: %s\n", links[i][1], strerror(errno));
    }
  }
}

static void raise_loopback(void) {
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  struct ifreq interface;
  memset(&interface, 0, sizeof interface);
  strcpy(interface.ifr_name, "lo");
  bool up = fd >= 0 && ioctl(fd, SIOCGIFFLAGS, &interface) == 0;
  interface.ifr_flags |= IFF_UP;
  if (!up || ioctl(fd, SIOCSIFFLAGS, &interface) != 0) {
    fprintf(stderr, "perdure-guest: cannot bring up loopback: %s\n", strerror(errno));
  }
  if (fd >= 0) close(fd);
}

static void set_hostname(void) {
  char name[128] = "";
  text_file_read_at(AT_FDCWD, "/etc/hostname", name, sizeof name);
  name[strcspn(name, " \t\r\n")] = '\0';
  const char *chosen = name[0] != '\0' ? name : "perdure";
  if (sethostname(chosen, strlen(chosen)) != 0) {
    fprintf(stderr, "perdure-guest: cannot set the host name: %s\n", strerror(errno));
  }
}

static void protect_agent(void) {
  if (!text_file_write_at(AT_FDCWD, "/proc/self/oom_score_adj", "-1000")) {
    fprintf(stderr, "perdure-guest: cannot protect itself from the OOM killer\n");
  }
  struct rlimit files = {AGENT_FILES, AGENT_FILES};
  setrlimit(RLIMIT_NOFILE, &files);
  reboot(RB_DISABLE_CAD);
}

/* Logs of all processes together: at most a quarter of the memory. */
static void set_log_budget(void) {
  char text[256] = "";
  text_file_read_at(AT_FDCWD, "/proc/meminfo", text, sizeof text);
  unsigned long long kib = 0;
  if (sscanf(text, "MemTotal: %llu", &kib) == 1) output_log_set_budget((size_t)kib * 1024 / 4);
}

int boot(void) {
  umask(022);
  chdir("/");
  mount_kernel_file_systems();
  protect_agent();
  load_modules();
  int port = wait_for_port();
  open_root();
  make_device_links();
  if (!cgroups_open("/sys/fs/cgroup", true)) {
    boot_failed("cannot make the cgroups: %s", strerror(errno));
  }
  raise_loopback();
  set_hostname();
  set_log_budget();
  text_file_read_at(AT_FDCWD, "/proc/sys/kernel/random/boot_id", agent.boot_id,
                    sizeof agent.boot_id);
  agent.boot_id[strcspn(agent.boot_id, "\n")] = '\0';
  mkdir(agent.run_folder, 0755);
  return port;
}
