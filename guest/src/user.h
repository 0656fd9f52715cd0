/*
 * Users of the guest, straight from /etc/passwd and /etc/group: a static program must not load NSS
 * modules of whatever distribution it runs in. The parsers work on text in memory.
 */
#ifndef PERDURE_USER_H
#define PERDURE_USER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "field.h"
#include "protocol.h"

#define USER_GROUPS_MAX 256
#define USER_TEXT_MAX 256

struct user {
  uid_t uid;
  gid_t gid;
  char name[USER_TEXT_MAX];
  char home[PATH_BYTES_MAX + 1];
  char shell[PATH_BYTES_MAX + 1];
  gid_t groups[USER_GROUPS_MAX];
  size_t group_count;
};

bool user_find(const char *passwd, const char *name, struct user *user);
/* As user_find; else `name` is a uid, which need not be in the file. */
bool user_find_or_make(const char *passwd, const char *name, struct user *user);
/* The group of this name or gid, which need not be in the file, as the only one. */
bool user_take_group(const char *group, const char *name, struct user *user);
/* Adds the supplementary groups; `user` is as found. The primary group is the first. */
void user_find_groups(const char *group, struct user *user);

/*
 * Reads both files (blocks: for children only). `name` is a name or a uid, with `:` and the name or gid of a
 * group where that shall be the only one. Without a name the user is root.
 */
enum status user_load(struct bytes name, struct user *user);
/* Takes the user's groups, gid and uid for good. */
bool user_become(const struct user *user);

#endif
