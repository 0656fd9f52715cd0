/* See watch_child.h. */
#include "watch_child.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "path.h"
#include "path_work.h"
#include "random_name.h"
#include "record.h"
#include "watch_tree.h"

#define EVENT_BYTES (64u << 10)
/* The two halves of a move come one after the other, but a read may end between them. */
#define OTHER_HALF_MS 20
#define MASK                                                                                  \
  (IN_CREATE | IN_DELETE | IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB | IN_MOVED_FROM | IN_MOVED_TO | \
   IN_DELETE_SELF | IN_MOVE_SELF | IN_EXCL_UNLINK | IN_ONLYDIR)

static struct answer_pipe *answers;
static struct record_writer records;
static struct watch_tree tree;
static int queue = -1; /* inotify's */
static int root_number;
static dev_t device;
static bool is_recursive;
static bool has_missed;
static char root[PATH_BYTES_MAX + 1];
/* Of a file the folder that it is in is watched: so another that takes its place is seen. */
static char only_name[NAME_MAX + 1];

/* What left its place, and may arrive in another. */
static struct {
  bool is_there;
  bool is_folder;
  bool is_draft;
  bool has_path;
  uint32_t cookie;
  int parent;
  char name[NAME_MAX + 1];
  char path[WATCH_PATH_MAX];
} leaving;

/* What is told. */

/* The last record, while it is held back: the same again would say nothing new. */
static struct {
  const char *kind;
  char path[WATCH_PATH_MAX];
} last_told;

static void put(const char *kind, const char *path, const char *from) {
  struct field_writer fields;
  record_begin(&records, &fields);
  field_put_string(&fields, TAG_KIND, kind);
  if (path != NULL) field_put_string(&fields, TAG_PATH, path);
  if (from != NULL) field_put_string(&fields, TAG_FROM, from);
  if (!record_end(&records, &fields)) has_missed = true;
  if (records.is_unread) _exit(0);
}

static void tell(const char *kind, const char *path, const char *from) {
  if (last_told.kind != NULL && strcmp(last_told.kind, kind) == 0 && from == NULL &&
      strcmp(last_told.path, path) == 0) {
    return;
  }
  put(kind, path, from);
  last_told.kind = kind;
  snprintf(last_told.path, sizeof last_told.path, "%s", path);
}

static void send_on(void) {
  if (has_missed) {
    has_missed = false;
    put("missed", NULL, NULL);
  }
  record_flush(&records);
  if (records.is_unread) _exit(0);
  last_told.kind = NULL;
}

static void tell_entry(const char *kind, int number, const char *name) {
  char path[WATCH_PATH_MAX];
  if (watch_tree_path(&tree, number, root, name, path, sizeof path)) {
    tell(kind, path, NULL);
  } else {
    has_missed = true;
  }
}

static _Noreturn void finish(void) {
  send_on();
  child_put_status(answers, STATUS_OK, NULL);
  _exit(0);
}

/* The watched path does not lead to what is watched any more. */
static _Noreturn void end_with_root(void) {
  char path[WATCH_PATH_MAX];
  bool is_file = only_name[0] != '\0';
  snprintf(path, sizeof path, "%s%s%s", is_file && strcmp(root, "/") == 0 ? "" : root,
           is_file ? "/" : "", only_name);
  tell("removed", path, NULL);
  finish();
}

/* What is watched. */

/* A descriptor that follows no link, and so the same folder for inotify. -1 with errno. */
static int add_watch(const char *path, struct stat *facts) {
  int fd = path_open(AT_FDCWD, path, O_PATH | O_DIRECTORY);
  if (fd < 0) return -1;
  char name[64];
  snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  int number = fstat(fd, facts) == 0 ? inotify_add_watch(queue, name, MASK) : -1;
  int problem = errno;
  close(fd);
  errno = problem;
  return number;
}

/* Watches a folder below; what may not be read or is gone by now is left out. */
static void add_folder(int parent, const char *name) {
  char path[PATH_BYTES_MAX + 1];
  struct stat facts;
  if (tree.count >= WATCH_FOLDERS_MAX ||
      !watch_tree_path(&tree, parent, root, name, path, sizeof path)) {
    has_missed = true;
    return;
  }
  int number = add_watch(path, &facts);
  if (number < 0) {
    if (errno == ENOSPC || errno == ENOMEM) has_missed = true;
  } else if (facts.st_dev != device) {
    inotify_rm_watch(queue, number);
  } else if (!watch_tree_put(&tree, number, parent, name)) {
    inotify_rm_watch(queue, number);
    has_missed = true;
  }
}

static bool is_folder(int folder, const struct dirent *entry) {
  struct stat facts;
  if (entry->d_type != DT_UNKNOWN) return entry->d_type == DT_DIR;
  return fstatat(folder, entry->d_name, &facts, AT_SYMLINK_NOFOLLOW) == 0 &&
         S_ISDIR(facts.st_mode);
}

/* Watches the folders in a folder, and tells of all that is there where `tells`. */
static void scan_folder(int number, bool tells) {
  char path[PATH_BYTES_MAX + 1];
  if (!watch_tree_path(&tree, number, root, NULL, path, sizeof path)) return;
  int fd = path_open(AT_FDCWD, path, O_RDONLY | O_DIRECTORY);
  DIR *entries = fd >= 0 ? fdopendir(fd) : NULL;
  if (entries == NULL) {
    if (fd >= 0) close(fd);
    return;
  }
  for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
    const char *name = entry->d_name;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || random_name_is(name)) continue;
    if (tells) tell_entry("created", number, name);
    if (is_folder(dirfd(entries), entry)) add_folder(number, name);
  }
  closedir(entries);
}

/* I1. New folders come last in the tree: one after another is scanned until none is new. */
static void scan_from(size_t first, bool tells) {
  for (size_t i = first; i < tree.count; i++) scan_folder(tree.folders[i].number, tells);
}

static void adopt_folder(int parent, const char *name) {
  size_t first = tree.count;
  add_folder(parent, name);
  scan_from(first, true);
}

static void drop_folder(int above) {
  static int numbers[WATCH_FOLDERS_MAX];
  size_t count = watch_tree_take(&tree, above, numbers);
  for (size_t i = 0; i < count; i++) inotify_rm_watch(queue, numbers[i]);
}

/* 0, or an error number. */
static int begin_watch(void) {
  struct stat facts;
  queue = inotify_init1(IN_CLOEXEC);
  if (queue < 0) return errno;
  root_number = add_watch(root, &facts);
  if (root_number < 0) return errno;
  device = facts.st_dev;
  if (!watch_tree_put(&tree, root_number, WATCH_ROOT, "")) return ENOMEM;
  if (is_recursive) scan_from(0, false);
  return 0;
}

/* I2: nothing is known any more, so everything is begun anew, and then said to be missed. */
static void begin_again(void) {
  close(queue);
  watch_tree_clear(&tree);
  leaving.is_there = false;
  if (begin_watch() != 0) end_with_root();
  has_missed = true;
}

/* What happens. */

static void let_go(void) {
  if (!leaving.is_there) return;
  leaving.is_there = false;
  if (leaving.is_folder) {
    struct watch_folder *folder = watch_tree_child(&tree, leaving.parent, leaving.name);
    if (folder != NULL) drop_folder(folder->number);
  }
  if (leaving.is_draft) return;
  if (leaving.has_path) {
    tell("removed", leaving.path, NULL);
  } else {
    has_missed = true;
  }
}

static void leave(const struct inotify_event *event) {
  leaving.is_there = true;
  leaving.is_folder = (event->mask & IN_ISDIR) != 0 && is_recursive;
  leaving.is_draft = random_name_is(event->name);
  leaving.cookie = event->cookie;
  leaving.parent = event->wd;
  snprintf(leaving.name, sizeof leaving.name, "%s", event->name);
  leaving.has_path = watch_tree_path(&tree, event->wd, root, event->name, leaving.path,
                                     sizeof leaving.path);
}

/* The folder that moved keeps its number, as do those in it. */
static void move_folder(const struct inotify_event *event) {
  struct watch_folder *replaced = watch_tree_child(&tree, event->wd, event->name);
  if (replaced != NULL) watch_tree_remove(&tree, replaced->number);
  struct watch_folder *folder = watch_tree_child(&tree, leaving.parent, leaving.name);
  if (folder == NULL) {
    adopt_folder(event->wd, event->name);
  } else if (!watch_tree_put(&tree, folder->number, event->wd, event->name)) {
    has_missed = true;
  }
}

static void arrive(const struct inotify_event *event) {
  bool comes_from_here = leaving.is_there;
  bool is_known_folder = (event->mask & IN_ISDIR) != 0 && is_recursive;
  char path[WATCH_PATH_MAX];
  leaving.is_there = false;
  if (!watch_tree_path(&tree, event->wd, root, event->name, path, sizeof path)) {
    has_missed = true;
    return;
  }
  if (comes_from_here && !leaving.is_draft && leaving.has_path) {
    tell("moved", path, leaving.path);
  } else {
    tell("created", path, NULL);
  }
  if (is_known_folder && comes_from_here) {
    move_folder(event);
  } else if (is_known_folder) {
    adopt_folder(event->wd, event->name);
  }
}

static void take_named(const struct inotify_event *event) {
  if (only_name[0] != '\0' && strcmp(event->name, only_name) != 0) return;
  if ((event->mask & IN_MOVED_FROM) != 0) {
    leave(event);
    return;
  }
  if (random_name_is(event->name)) return;
  if ((event->mask & IN_MOVED_TO) != 0) {
    arrive(event);
  } else if ((event->mask & IN_CREATE) != 0) {
    tell_entry("created", event->wd, event->name);
    if ((event->mask & IN_ISDIR) != 0 && is_recursive) adopt_folder(event->wd, event->name);
  } else if ((event->mask & IN_DELETE) != 0) {
    tell_entry("removed", event->wd, event->name);
  } else if ((event->mask & (IN_MODIFY | IN_CLOSE_WRITE)) != 0) {
    tell_entry("changed", event->wd, event->name);
  } else if ((event->mask & IN_ATTRIB) != 0) {
    tell_entry("attributes", event->wd, event->name);
  }
}

/* Of the folder itself. Those below the root are told of by the folder that they are in. */
static void take_unnamed(const struct inotify_event *event) {
  bool is_gone = (event->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT | IN_IGNORED)) != 0;
  if (event->wd == root_number) {
    if (is_gone) end_with_root();
    if (only_name[0] == '\0') tell("attributes", root, NULL);
  } else if ((event->mask & IN_IGNORED) != 0) {
    watch_tree_remove(&tree, event->wd);
  }
}

static void take(const struct inotify_event *event) {
  bool is_other_half = (event->mask & IN_MOVED_TO) != 0 && event->cookie == leaving.cookie;
  if (!is_other_half) let_go();
  if ((event->mask & IN_Q_OVERFLOW) != 0) {
    begin_again();
  } else if (watch_tree_find(&tree, event->wd) != NULL) {
    if (event->len > 0) {
      take_named(event);
    } else {
      take_unnamed(event);
    }
  }
}

/* Waits for changes, and takes them all. */
static void take_some(void) {
  static _Alignas(struct inotify_event) char events[EVENT_BYTES];
  struct pollfd more = {.fd = queue, .events = POLLIN, .revents = 0};
  if (leaving.is_there && poll(&more, 1, OTHER_HALF_MS) == 0) {
    let_go();
    send_on();
  }
  ssize_t length = read(queue, events, sizeof events);
  if (length < 0 && errno == EINTR) return;
  if (length <= 0) end_with_root();
  for (ssize_t at = 0; at < length;) {
    const struct inotify_event *event = (const void *)(events + at);
    bool is_overflow = (event->mask & IN_Q_OVERFLOW) != 0;
    take(event);
    if (is_overflow) break; /* what follows has numbers of before */
    at += (ssize_t)(sizeof *event + event->len);
  }
  send_on();
}

static void find_root(const struct request *request) {
  path_work_take(request, TAG_PATH, root);
  for (size_t length = strlen(root); length > 1 && root[length - 1] == '/';) root[--length] = '\0';
  struct stat facts;
  int fd = path_open(AT_FDCWD, root, O_PATH);
  if (fd < 0 || fstat(fd, &facts) != 0) path_work_fail_errno(answers, "watch", root, errno);
  close(fd);
  is_recursive = S_ISDIR(facts.st_mode) && request_number(request, TAG_RECURSIVE, 0) != 0;
  if (S_ISDIR(facts.st_mode)) return;
  char *slash = strrchr(root, '/');
  snprintf(only_name, sizeof only_name, "%s", slash + 1);
  slash[slash == root ? 1 : 0] = '\0';
}

void watch_child(const struct request *request, struct answer_pipe *pipe, int bytes) {
  answers = pipe;
  path_work_begin(request, answers);
  find_root(request);
  int problem = begin_watch();
  bool is_full = problem == EMFILE || problem == ENFILE || problem == ENOSPC || problem == ENOMEM;
  if (is_full) path_work_fail(answers, STATUS_TOO_MANY, "watch", root, problem);
  if (problem != 0) path_work_fail_errno(answers, "watch", root, problem);
  record_writer_open(&records, bytes);
  child_put_status(answers, STATUS_OK, NULL);
  send_on();
  for (;;) take_some();
}
