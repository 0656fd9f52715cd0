/* See session.h. */
#include "session.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text_file.h"

struct facts {
  pid_t pid;
  int parent;
  int session;
};

static bool read_facts(const char *entry, struct facts *facts) {
  char *rest = NULL;
  long pid = strtol(entry, &rest, 10);
  if (pid <= 1 || *rest != '\0') return false;
  char name[64];
  char stat[1024];
  snprintf(name, sizeof name, "/proc/%ld/stat", pid);
  if (text_file_read_at(AT_FDCWD, name, stat, sizeof stat) <= 0) return false;
  /* "pid (name) state ppid pgrp session": the name may hold anything, its end is the last ')'. */
  const char *at = strrchr(stat, ')');
  char state = '\0';
  int group = 0;
  facts->pid = (pid_t)pid;
  return at != NULL &&
         sscanf(at + 1, " %c %d %d %d", &state, &facts->parent, &group, &facts->session) == 4 &&
         state != 'Z' && state != 'X';
}

static void each(bool (*wanted)(const struct facts *, pid_t), pid_t which,
                 void (*visit)(pid_t pid, void *context), void *context) {
  DIR *proc = opendir("/proc");
  if (proc == NULL) return;
  for (struct dirent *entry; (entry = readdir(proc)) != NULL;) {
    struct facts facts;
    if (read_facts(entry->d_name, &facts) && wanted(&facts, which)) visit(facts.pid, context);
  }
  closedir(proc);
}

static bool in_session(const struct facts *facts, pid_t session) {
  return facts->session == (int)session;
}

static bool is_child(const struct facts *facts, pid_t parent) {
  return facts->parent == (int)parent;
}

void session_each_process(pid_t session, void (*visit)(pid_t pid, void *context), void *context) {
  each(in_session, session, visit, context);
}

void children_each(pid_t parent, void (*visit)(pid_t pid, void *context), void *context) {
  each(is_child, parent, visit, context);
}
