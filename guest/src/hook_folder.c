/* See hook_folder.h. */
#include "hook_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent.h"
#include "path.h"

/* Not among the headers of every libc: a file system of the workload's own is not asked. */
#ifndef AT_STATX_DONT_SYNC
#define AT_STATX_DONT_SYNC 0x4000
#endif

/* File systems stamp with a coarse clock: two changes within a tick look like one. */
#define SETTLED_S 1

/* The folder as it was before it was listed, held open so that its path stays in the caches. */
static int seen_folder = -1;
static struct stat seen;
static bool seen_is_told;
static bool seen_is_empty;

static bool is_same(const struct stat *left, const struct stat *right) {
  return left->st_ino == right->st_ino && left->st_dev == right->st_dev &&
         left->st_ctim.tv_sec == right->st_ctim.tv_sec &&
         left->st_ctim.tv_nsec == right->st_ctim.tv_nsec;
}

static bool is_settled(const struct stat *facts) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return facts->st_ctim.tv_sec + SETTLED_S < now.tv_sec;
}

static void forget(void) {
  if (seen_folder >= 0) close(seen_folder);
  seen_folder = -1;
  seen_is_told = false;
  seen_is_empty = false;
}

bool hook_folder_is_empty(void) {
  struct stat facts = {0};
  int folder = path_open_cached(agent.hook_folder, O_PATH | O_DIRECTORY);
  if (folder < 0) {
    int problem = errno;
    forget();
    return problem == ENOENT || problem == ENOTDIR;
  }
  bool told = fstatat(folder, "", &facts, AT_EMPTY_PATH | AT_STATX_DONT_SYNC) == 0;
  if (told && seen_is_empty && is_same(&facts, &seen)) {
    close(folder);
    return true;
  }
  forget();
  seen_folder = folder;
  seen = facts;
  seen_is_told = told;
  return false;
}

void hook_folder_listed(bool empty) {
  seen_is_empty = empty && seen_is_told && is_settled(&seen);
  /* It was not in the caches and now it is: held, it stays, and may be known the next time. */
  if (seen_folder < 0) seen_folder = path_open_cached(agent.hook_folder, O_PATH | O_DIRECTORY);
}

void hook_folder_open(void) {
  DIR *entries = opendir(agent.hook_folder);
  if (entries == NULL) return;
  if (!hook_folder_is_empty()) {
    bool empty = true;
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
      if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) empty = false;
    }
    hook_folder_listed(empty);
  }
  closedir(entries);
}
