/* See user.h. */
#include "user.h"

#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "text_file.h"

#define USER_FILE_MAX (1u << 20)

/* One line cut at ':'; the last field takes the rest. Returns how many fields there are. */
static size_t split_line(const char *line, size_t length, struct bytes *fields, size_t count) {
  size_t found = 0;
  const char *end = line + length;
  while (found < count) {
    const char *colon = memchr(line, ':', (size_t)(end - line));
    const char *stop = colon != NULL && found + 1 < count ? colon : end;
    fields[found].at = (const uint8_t *)line;
    fields[found].length = (size_t)(stop - line);
    found++;
    if (stop == end) break;
    line = stop + 1;
  }
  return found;
}

static bool parse_id(struct bytes text, uint32_t *id) {
  uint64_t value = 0;
  if (text.length == 0 || text.length > 10) return false;
  for (size_t i = 0; i < text.length; i++) {
    if (text.at[i] < '0' || text.at[i] > '9') return false;
    value = value * 10 + (uint64_t)(text.at[i] - '0');
  }
  if (value >= UINT32_MAX) return false; /* (uid_t)-1 means "leave unchanged" to the kernel */
  *id = (uint32_t)value;
  return true;
}

/* The first entry with this name, or where that is NULL with this uid. */
static bool find_entry(const char *passwd, const char *name, uint32_t uid, struct user *user) {
  for (const char *line = passwd; *line != '\0';) {
    size_t length = strcspn(line, "\n");
    struct bytes fields[7]; /* name, password, uid, gid, comment, home, shell */
    if (split_line(line, length, fields, 7) == 7 && parse_id(fields[2], &user->uid) &&
        (name != NULL ? bytes_equal(fields[0], name) : user->uid == uid) &&
        parse_id(fields[3], &user->gid) &&
        bytes_to_string(fields[0], user->name, sizeof user->name) &&
        bytes_to_string(fields[5], user->home, sizeof user->home) &&
        bytes_to_string(fields[6], user->shell, sizeof user->shell)) {
      if (user->home[0] != '/') strcpy(user->home, "/");
      if (user->shell[0] != '/') strcpy(user->shell, "/bin/sh");
      user->groups[0] = user->gid;
      user->group_count = 1;
      return true;
    }
    line += length;
    if (*line == '\n') line++;
  }
  return false;
}

bool user_find(const char *passwd, const char *name, struct user *user) {
  return find_entry(passwd, name, 0, user);
}

bool user_find_or_make(const char *passwd, const char *name, struct user *user) {
  if (user_find(passwd, name, user)) return true;
  uint32_t uid = 0;
  struct bytes digits = {(const uint8_t *)name, strlen(name)};
  if (!parse_id(digits, &uid)) return false;
  if (find_entry(passwd, NULL, uid, user)) return true;
  user->uid = uid;
  user->gid = 0;
  snprintf(user->name, sizeof user->name, "%s", name);
  strcpy(user->home, "/");
  strcpy(user->shell, "/bin/sh");
  user->groups[0] = user->gid;
  user->group_count = 1;
  return true;
}

bool user_take_group(const char *group, const char *name, struct user *user) {
  uint32_t gid = 0;
  bool found = false;
  for (const char *line = group; *line != '\0' && !found;) {
    size_t length = strcspn(line, "\n");
    struct bytes fields[3]; /* name, password, gid and members */
    struct bytes ids[2];
    if (split_line(line, length, fields, 3) == 3 && bytes_equal(fields[0], name) &&
        split_line((const char *)fields[2].at, fields[2].length, ids, 2) > 0) {
      found = parse_id(ids[0], &gid);
    }
    line += length;
    if (*line == '\n') line++;
  }
  struct bytes digits = {(const uint8_t *)name, strlen(name)};
  if (!found && !parse_id(digits, &gid)) return false;
  user->gid = gid;
  user->groups[0] = gid;
  user->group_count = 1;
  return true;
}

static bool list_holds(struct bytes list, const char *name) {
  size_t name_length = strlen(name);
  size_t at = 0;
  while (at < list.length) {
    const uint8_t *comma = memchr(list.at + at, ',', list.length - at);
    size_t length = comma != NULL ? (size_t)(comma - (list.at + at)) : list.length - at;
    if (length == name_length && memcmp(list.at + at, name, length) == 0) return true;
    at += length + 1;
  }
  return false;
}

void user_find_groups(const char *group, struct user *user) {
  for (const char *line = group; *line != '\0';) {
    size_t length = strcspn(line, "\n");
    struct bytes fields[4]; /* name, password, gid, members */
    uint32_t gid = 0;
    if (split_line(line, length, fields, 4) == 4 && parse_id(fields[2], &gid) &&
        gid != user->gid && user->group_count < USER_GROUPS_MAX &&
        list_holds(fields[3], user->name)) {
      user->groups[user->group_count++] = gid;
    }
    line += length;
    if (*line == '\n') line++;
  }
}

enum status user_load(struct bytes name, struct user *user) {
  char wanted[USER_TEXT_MAX] = "root";
  if (name.length > 0 && !bytes_to_string(name, wanted, sizeof wanted)) {
    return STATUS_USER_NOT_FOUND;
  }
  char *wanted_group = strchr(wanted, ':');
  if (wanted_group != NULL) *wanted_group++ = '\0';
  char *passwd = text_file_read("/etc/passwd", USER_FILE_MAX);
  bool found = user_find_or_make(passwd != NULL ? passwd : "", wanted, user);
  free(passwd);
  if (!found) {
    /* A broken passwd file must not lock the owner out. */
    if (strcmp(wanted, "root") != 0) return STATUS_USER_NOT_FOUND;
    user_find("root:x:0:0:root:/root:/bin/sh", "root", user);
  }
  char *group = text_file_read("/etc/group", USER_FILE_MAX);
  if (wanted_group != NULL) {
    found = user_take_group(group != NULL ? group : "", wanted_group, user);
  } else {
    found = true;
    if (group != NULL) user_find_groups(group, user);
  }
  free(group);
  return found ? STATUS_OK : STATUS_USER_NOT_FOUND;
}

bool user_become(const struct user *user) {
  if (geteuid() != 0) return user->uid == geteuid(); /* tests as a plain user */
  return setgroups(user->group_count, user->groups) == 0 &&
         setresgid(user->gid, user->gid, user->gid) == 0 &&
         setresuid(user->uid, user->uid, user->uid) == 0;
}
