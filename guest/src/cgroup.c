/* See cgroup.h. */
#include "cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "text_file.h"

#define DEPTH_MAX 16
#define THREADS_RESERVED 256 /* kernel threads and the agent's children */
#define FOLDER_FLAGS (O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)

static int base_folder = -1;
static int workload_folder = -1;
static int hooks_folder = -1;

static int make_folder(int parent, const char *name) {
  if (mkdirat(parent, name, 0755) != 0 && errno != EEXIST) return -1;
  return openat(parent, name, FOLDER_FLAGS);
}

/* One by one: a controller that this kernel lacks must not take the others with it. */
static void enable_controllers(int folder) {
  text_file_write_at(folder, "cgroup.subtree_control", "+memory");
  text_file_write_at(folder, "cgroup.subtree_control", "+pids");
  text_file_write_at(folder, "cgroup.subtree_control", "+cpu");
}

/* A workload that forks without end must leave room for the children of the agent. */
static void limit_workload(void) {
  char text[32] = "";
  text_file_read_at(AT_FDCWD, "/proc/sys/kernel/threads-max", text, sizeof text);
  long threads_max = strtol(text, NULL, 10);
  if (threads_max <= 4 * THREADS_RESERVED) return;
  snprintf(text, sizeof text, "%ld", threads_max - THREADS_RESERVED);
  text_file_write_at(workload_folder, "pids.max", text);
}

bool cgroups_open(const char *base, bool with_agent) {
  base_folder = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (base_folder < 0) return false;
  if (with_agent) {
    int agent_folder = make_folder(base_folder, "agent");
    if (agent_folder < 0 || !text_file_write_at(agent_folder, "cgroup.procs", "0")) return false;
    close(agent_folder);
  }
  workload_folder = make_folder(base_folder, "workload");
  hooks_folder = make_folder(base_folder, "hooks");
  if (workload_folder < 0 || hooks_folder < 0) return false;
  enable_controllers(base_folder);
  enable_controllers(workload_folder);
  if (with_agent) limit_workload();
  return true;
}

int cgroup_workload(void) { return workload_folder; }
int cgroup_hooks(void) { return hooks_folder; }

static void process_name(char *name, size_t capacity, uint64_t process) {
  snprintf(name, capacity, "p%" PRIu64, process);
}

int cgroup_open_process(uint64_t process) {
  char name[32];
  process_name(name, sizeof name, process);
  return make_folder(workload_folder, name);
}

/* Calls `visit` for every folder directly below. */
static void each_folder(int folder, void (*visit)(int parent, const char *name, void *),
                        void *context) {
  int listing = openat(folder, ".", FOLDER_FLAGS);
  DIR *entries = listing >= 0 ? fdopendir(listing) : NULL;
  if (entries == NULL) {
    if (listing >= 0) close(listing);
    return;
  }
  for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
    if (entry->d_type != DT_DIR || entry->d_name[0] == '.') continue;
    visit(folder, entry->d_name, context);
  }
  closedir(entries);
}

static void remove_folder(int parent, const char *name, void *context) {
  unsigned depth = context != NULL ? *(unsigned *)context : 0;
  if (unlinkat(parent, name, AT_REMOVEDIR) == 0 || depth >= DEPTH_MAX) return;
  int folder = openat(parent, name, FOLDER_FLAGS);
  if (folder < 0) return;
  depth++;
  each_folder(folder, remove_folder, &depth);
  close(folder);
  unlinkat(parent, name, AT_REMOVEDIR);
}

void cgroup_remove_process(uint64_t process) {
  char name[32];
  process_name(name, sizeof name, process);
  remove_folder(workload_folder, name, NULL);
}

void cgroups_remove(void) {
  if (base_folder < 0) return;
  remove_folder(base_folder, "workload", NULL);
  remove_folder(base_folder, "hooks", NULL);
}

int cgroup_open_events(int folder) {
  return openat(folder, "cgroup.events", O_RDONLY | O_CLOEXEC);
}

enum cgroup_answer cgroup_event(int events, const char *key) {
  char text[256];
  ssize_t length = pread(events, text, sizeof text - 1, 0);
  if (length <= 0) return CGROUP_GONE;
  text[length] = '\0';
  size_t key_length = strlen(key);
  for (const char *line = text; line != NULL && *line != '\0';) {
    if (strncmp(line, key, key_length) == 0 && line[key_length] == ' ') {
      return line[key_length + 1] == '1' ? CGROUP_YES : CGROUP_NO;
    }
    line = strchr(line, '\n');
    if (line != NULL) line++;
  }
  return CGROUP_GONE;
}

enum cgroup_answer cgroup_look(int folder, const char *key) {
  int events = cgroup_open_events(folder);
  if (events < 0) return CGROUP_GONE;
  enum cgroup_answer answer = cgroup_event(events, key);
  close(events);
  return answer;
}

bool cgroup_kill(int folder) { return text_file_write_at(folder, "cgroup.kill", "1"); }

int cgroup_open_freeze(int folder) {
  return openat(folder, "cgroup.freeze", O_WRONLY | O_CLOEXEC);
}

bool cgroup_set_frozen(int freeze, bool frozen) {
  return pwrite(freeze, frozen ? "1" : "0", 1, 0) == 1;
}

struct walk {
  void (*visit)(pid_t pid, void *context);
  void *context;
  unsigned depth;
};

static void walk_folder(int folder, struct walk *walk);

static void walk_child(int parent, const char *name, void *context) {
  struct walk *walk = context;
  if (walk->depth >= DEPTH_MAX) return;
  int folder = openat(parent, name, FOLDER_FLAGS);
  if (folder < 0) return;
  walk->depth++;
  walk_folder(folder, walk);
  walk->depth--;
  close(folder);
}

static void walk_folder(int folder, struct walk *walk) {
  int fd = openat(folder, "cgroup.procs", O_RDONLY | O_CLOEXEC);
  FILE *lines = fd >= 0 ? fdopen(fd, "r") : NULL;
  if (lines != NULL) {
    char line[32];
    while (fgets(line, sizeof line, lines) != NULL) {
      long pid = strtol(line, NULL, 10);
      if (pid > 1) walk->visit((pid_t)pid, walk->context);
    }
    fclose(lines);
  } else if (fd >= 0) {
    close(fd);
  }
  each_folder(folder, walk_child, walk);
}

void cgroup_each_process(int folder, void (*visit)(pid_t pid, void *context), void *context) {
  struct walk walk = {visit, context, 0};
  walk_folder(folder, &walk);
}
