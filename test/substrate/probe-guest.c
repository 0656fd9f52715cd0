/*
 * Probe guest: the whole user space of a test VM. As PID 1 it loads the modules that the image's
 * initramfs lists, opens the guest link, answers RESYNC as docs/internals/guest-link.md says, and then
 * obeys commands of one line: a word and up to three numbers. Each is answered by one line.
 *
 * It is not the guest agent and shares nothing with it, so that the substrate is tested on its own.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/reboot.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { FRAME = 48, MAGIC = 16 };

static const char resync[MAGIC] = "\x89PERDURE-RESYNC\n";
static const char synced[MAGIC] = "\x89PERDURE-SYNCED\n";

static int port;
static uint64_t ticks;
static void *held;
static size_t held_bytes;

static void put(const void *bytes, size_t count)
{
  const char *at = bytes;

  while (count > 0) {
    ssize_t done = write(port, at, count);

    if (done < 0) {
      if (errno != EAGAIN && errno != EINTR)
        usleep(10000);
      continue;
    }
    at += done;
    count -= done;
  }
}

static void say(const char *line)
{
  put(line, strlen(line));
  put("\n", 1);
}

/* xorshift: bytes that a seed decides. */
static void fill(void *to, size_t bytes, uint64_t seed)
{
  uint64_t state = seed | 1;

  for (size_t i = 0; i < bytes / 8; i++) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    ((uint64_t *)to)[i] = state;
  }
}

/* FNV-1a over words. */
static uint64_t sum(const void *of, size_t bytes)
{
  uint64_t hash = 1469598103934665603ull;

  for (size_t i = 0; i < bytes / 8; i++) {
    hash ^= ((const uint64_t *)of)[i];
    hash *= 1099511628211ull;
  }
  return hash;
}

static void *pages(size_t bytes)
{
  void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

  return at == MAP_FAILED ? NULL : at;
}

static void say_sum(const void *of, size_t bytes)
{
  char line[64];

  snprintf(line, sizeof line, "ok %016lx", (unsigned long)sum(of, bytes));
  say(line);
}

/* Reads or writes the disk past every cache. */
static void disk(int writes, off_t offset, size_t bytes, uint64_t seed)
{
  int fd = open("/dev/vda", O_RDWR | O_SYNC | O_DIRECT);
  void *buffer = pages(bytes);
  ssize_t done = -1;

  if (fd >= 0 && buffer != NULL) {
    if (writes)
      fill(buffer, bytes, seed);
    done = writes ? pwrite(fd, buffer, bytes, offset) : pread(fd, buffer, bytes, offset);
  }
  if (done == (ssize_t)bytes)
    say_sum(buffer, bytes);
  else
    say("error disk");
  if (buffer != NULL)
    munmap(buffer, bytes);
  close(fd);
}

static void hold(size_t bytes, uint64_t seed)
{
  if (held != NULL)
    munmap(held, held_bytes);
  held_bytes = bytes;
  held = pages(bytes);
  if (held == NULL) {
    say("error memory");
    return;
  }
  fill(held, bytes, seed);
  say_sum(held, bytes);
}

static void flood(const char *path, size_t bytes)
{
  char block[4096];
  int fd = path == NULL ? -1 : open(path, O_WRONLY);

  memset(block, 'x', sizeof block);
  block[sizeof block - 1] = '\n';
  for (size_t done = 0; done < bytes; done += sizeof block) {
    if (path == NULL)
      put(block, sizeof block);
    else if (write(fd, block, sizeof block) < 0)
      break;
  }
  close(fd);
  say("ok");
}

static void clocks(void)
{
  char line[64];
  struct timespec monotonic, boot;

  clock_gettime(CLOCK_MONOTONIC, &monotonic);
  clock_gettime(CLOCK_BOOTTIME, &boot);
  snprintf(line, sizeof line, "ok %.3f %.3f", monotonic.tv_sec * 1e3 + monotonic.tv_nsec / 1e6,
           boot.tv_sec * 1e3 + boot.tv_nsec / 1e6);
  say(line);
}

static void obey(const char *word, unsigned long a, unsigned long b, unsigned long c)
{
  char line[64];
  int fd;

  if (strcmp(word, "hold") == 0)
    hold(a, b);
  else if (strcmp(word, "sum") == 0)
    say_sum(held, held_bytes);
  else if (strcmp(word, "write") == 0)
    disk(1, a, b, c);
  else if (strcmp(word, "read") == 0)
    disk(0, a, b, 0);
  else if (strcmp(word, "ticks") == 0) {
    snprintf(line, sizeof line, "ok %lu", (unsigned long)ticks);
    say(line);
  } else if (strcmp(word, "clocks") == 0)
    clocks();
  else if (strcmp(word, "flood-link") == 0)
    flood(NULL, a);
  else if (strcmp(word, "flood-console") == 0)
    flood("/dev/console", a);
  else if (strcmp(word, "reset") == 0)
    reboot(LINUX_REBOOT_CMD_RESTART);
  else if (strcmp(word, "shutdown") == 0)
    reboot(LINUX_REBOOT_CMD_POWER_OFF);
  else if (strcmp(word, "panic") == 0) {
    fd = open("/proc/sysrq-trigger", O_WRONLY);
    if (write(fd, "c", 1) < 0)
      say("error panic");
  } else
    say("error word");
}

static void load_modules(void)
{
  char path[256];
  FILE *list = fopen("/modules.list", "r");

  while (list != NULL && fgets(path, sizeof path, list) != NULL) {
    path[strcspn(path, "\n")] = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (syscall(SYS_finit_module, fd, "", 0) != 0)
      printf("module %s: %s\n", path, strerror(errno));
    close(fd);
  }
}

/* Takes one RESYNC or one line out of `in`; returns what is left, or the same where none is whole. */
static size_t take(char *in, size_t have, int *epoch)
{
  char *magic = memmem(in, have, resync, MAGIC);
  char *end = memchr(in, '\n', have);
  char word[32] = "";
  unsigned long a = 0, b = 0, c = 0;
  size_t used;

  if (magic != NULL) {
    char answer[FRAME] = {0};
    const uint32_t version = 1;

    used = magic - in + FRAME;
    if (used > have)
      return have;
    memcpy(answer, synced, MAGIC);
    memcpy(answer + 16, magic + 16, 16);
    memcpy(answer + 32, &version, 4);
    memcpy(answer + 36, magic + 36, 4);
    put(answer, FRAME);
    *epoch = 1;
  } else if (end != NULL && *epoch && memchr(in, 0x89, end - in) == NULL) {
    used = end - in + 1;
    *end = 0;
    if (sscanf(in, "%31s %lu %lu %lu", word, &a, &b, &c) > 0)
      obey(word, a, b, c);
  } else
    return have;
  memmove(in, in + used, have - used);
  return have - used;
}

int main(void)
{
  static char in[65536];
  size_t have = 0;
  int epoch = 0;

  mount("proc", "/proc", "proc", 0, NULL);
  mount("dev", "/dev", "devtmpfs", 0, NULL);
  load_modules();
  for (int tries = 0; tries < 1000; tries++) {
    port = open("/dev/vport0p1", O_RDWR);
    if (port >= 0)
      break;
    usleep(10000);
  }
  printf("probe guest: port %d\n", port);
  fflush(stdout);
  for (;;) {
    struct pollfd poller = {.fd = port, .events = POLLIN};
    ssize_t got;

    poll(&poller, 1, 50);
    ticks++;
    if ((poller.revents & POLLIN) == 0) {
      /* Nobody is connected: POLLHUP comes at once. */
      if ((poller.revents & POLLHUP) != 0)
        usleep(20000);
      continue;
    }
    got = read(port, in + have, sizeof in - have);
    if (got <= 0) {
      usleep(10000);
      continue;
    }
    have += got;
    for (size_t before = have + 1; have < before && have > 0;) {
      before = have;
      have = take(in, have, &epoch);
    }
    if (have == sizeof in)
      have = 0;
  }
}
