/* See root.h. */
#include "root.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "boot.h"
#include "field.h"
#include "text_file.h"

#define NEW_ROOT "/newroot"
#define DEPTH_MAX 32

/* ext4's superblock: where it is and what is needed of it. */
#define SUPER_AT 1024
#define SUPER_BYTES 1024
#define SUPER_BLOCKS_LOW 0x04
#define SUPER_LOG_BLOCK_BYTES 0x18
#define SUPER_MAGIC 0x38
#define SUPER_INCOMPAT 0x60
#define SUPER_BLOCKS_HIGH 0x150
#define EXT4_MAGIC 0xef53
#define INCOMPAT_64BIT 0x80u
#define RESIZE_FS _IOW('f', 16, uint64_t)

/* How many blocks the device has room for, 0 where the file system fills it already. */
static uint64_t blocks_to_grow_to(const char *device) {
  uint8_t super[SUPER_BYTES];
  int fd = open(device, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  off_t device_bytes = lseek(fd, 0, SEEK_END);
  ssize_t got = pread(fd, super, sizeof super, SUPER_AT);
  close(fd);
  if (got != SUPER_BYTES || wire_get_u16(super + SUPER_MAGIC) != EXT4_MAGIC) return 0;
  uint32_t log_block_bytes = wire_get_u32(super + SUPER_LOG_BLOCK_BYTES);
  if (device_bytes <= 0 || log_block_bytes > 6) return 0;
  uint64_t blocks = wire_get_u32(super + SUPER_BLOCKS_LOW);
  if ((wire_get_u32(super + SUPER_INCOMPAT) & INCOMPAT_64BIT) != 0) {
    blocks |= (uint64_t)wire_get_u32(super + SUPER_BLOCKS_HIGH) << 32;
  }
  uint64_t room = (uint64_t)device_bytes / (1024u << log_block_bytes);
  return room > blocks ? room : 0;
}

static void grow(const char *device) {
  uint64_t blocks = blocks_to_grow_to(device);
  if (blocks == 0) return;
  int fd = open(NEW_ROOT, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0 || ioctl(fd, RESIZE_FS, &blocks) != 0) {
    fprintf(stderr, "perdure-guest: cannot grow the file system: %s\n", strerror(errno));
  }
  if (fd >= 0) close(fd);
}

static void move_to_new_root(const char *name) {
  char target[64];
  snprintf(target, sizeof target, NEW_ROOT "%s", name);
  mkdir(target, 0755);
  if (mount(name, target, NULL, MS_MOVE, NULL) != 0) {
    boot_failed("cannot move %s: %s", name, strerror(errno));
  }
}

/* Everything on the file system of `folder`, never anything mounted on it. Takes the descriptor. */
static void remove_all(int folder, dev_t device, unsigned depth) {
  DIR *entries = fdopendir(folder);
  if (entries == NULL) {
    close(folder);
    return;
  }
  for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
    struct stat facts;
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    if (fstatat(dirfd(entries), entry->d_name, &facts, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (facts.st_dev != device) continue;
    if (!S_ISDIR(facts.st_mode)) {
      unlinkat(dirfd(entries), entry->d_name, 0);
      continue;
    }
    int below = openat(dirfd(entries), entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (below >= 0 && depth < DEPTH_MAX) remove_all(below, device, depth + 1);
    unlinkat(dirfd(entries), entry->d_name, AT_REMOVEDIR);
  }
  closedir(entries);
}

void root_switch(const char *device) {
  mkdir(NEW_ROOT, 0755);
  if (mount(device, NEW_ROOT, "ext4", MS_NOATIME, NULL) != 0) {
    boot_failed("cannot mount %s: %s", device, strerror(errno));
  }
  grow(device);
  move_to_new_root("/dev");
  move_to_new_root("/proc");
  move_to_new_root("/sys");
  move_to_new_root("/run");
  struct stat facts;
  int old_root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (old_root < 0 || fstat(old_root, &facts) != 0 || chdir(NEW_ROOT) != 0 ||
      mount(".", "/", NULL, MS_MOVE, NULL) != 0 || chroot(".") != 0 || chdir("/") != 0) {
    boot_failed("cannot switch the root: %s", strerror(errno));
  }
  remove_all(old_root, facts.st_dev, 0);
}

static void put_if_absent(const char *path, const char *text) {
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return;
  if (write(fd, text, strlen(text)) < 0) boot_failed("cannot write %s", path);
  close(fd);
}

static void make_home(const char *path, uid_t owner, mode_t mode) {
  if (mkdir(path, mode) == 0 && chown(path, owner, owner) == 0) chmod(path, mode);
}

void root_fill_initramfs(void) {
  mkdir("/etc", 0755);
  mkdir("/home", 0755);
  make_home("/tmp", 0, 01777);
  make_home("/root", 0, 0700);
  make_home("/home/user", 1000, 0755);
  put_if_absent("/etc/passwd",
                "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/sh\n");
  put_if_absent("/etc/group", "root:x:0:\ntty:x:5:\nuser:x:1000:\n");
}
