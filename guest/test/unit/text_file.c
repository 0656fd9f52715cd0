/* Small files that are written over where they lie, or replaced where that would be wrong. */
#include "../../src/text_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../check.h"
#include "unit.h"

static int folder;

static bool rewrite(const char *name, const char *text) {
  return text_file_rewrite_at(folder, name, text, strlen(text), 0644);
}

static bool holds(const char *name, const char *text) {
  char buffer[64];
  return text_file_read_at(folder, name, buffer, sizeof buffer) == (ssize_t)strlen(text) &&
         strcmp(buffer, text) == 0;
}

static struct stat facts_of(const char *name) {
  struct stat facts = {0};
  fstatat(folder, name, &facts, AT_SYMLINK_NOFOLLOW);
  return facts;
}

static void written_over(void) {
  CHECK(rewrite("plain", "first\n") && holds("plain", "first\n"));
  ino_t inode = facts_of("plain").st_ino;
  CHECK(rewrite("plain", "a longer one\n") && holds("plain", "a longer one\n"));
  CHECK(rewrite("plain", "short\n") && holds("plain", "short\n"));
  CHECK(rewrite("plain", "") && holds("plain", ""));
  CHECK(facts_of("plain").st_ino == inode);
}

/* Whoever shares the file, or was kept out of it, is not to see what is written. */
static void replaced(void) {
  CHECK(rewrite("shared", "old\n") && linkat(folder, "shared", folder, "other", 0) == 0);
  CHECK(rewrite("shared", "new\n") && holds("shared", "new\n") && holds("other", "old\n"));
  CHECK(symlinkat("other", folder, "link") == 0);
  CHECK(rewrite("link", "new\n") && holds("link", "new\n") && holds("other", "old\n"));
  CHECK(S_ISREG(facts_of("link").st_mode));
  CHECK(mkfifoat(folder, "fifo", 0644) == 0);
  CHECK(rewrite("fifo", "new\n") && holds("fifo", "new\n") && S_ISREG(facts_of("fifo").st_mode));
  CHECK(rewrite("open", "old\n"));
  ino_t inode = facts_of("open").st_ino;
  CHECK(text_file_rewrite_at(folder, "open", "key\n", 4, 0600) && holds("open", "key\n"));
  CHECK(facts_of("open").st_ino != inode && (facts_of("open").st_mode & 07777) == 0600);
}

static void refused(void) {
  CHECK(mkdirat(folder, "folder", 0755) == 0 && !rewrite("folder", "no\n"));
  CHECK(S_ISDIR(facts_of("folder").st_mode));
}

void unit_text_files(void) {
  char path[] = "/tmp/perdure-unit-XXXXXX";
  mode_t mask = umask(0);
  CHECK(mkdtemp(path) != NULL);
  folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  written_over();
  replaced();
  refused();
  const char *const names[] = {"plain", "shared", "other", "link", "fifo", "open"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) CHECK(unlinkat(folder, names[i], 0) == 0);
  CHECK(unlinkat(folder, "folder", AT_REMOVEDIR) == 0);
  close(folder);
  /* That it is empty says that no draft was left. */
  CHECK(rmdir(path) == 0);
  umask(mask);
}
