/* Users and their groups. */
#include <string.h>

#include "../../src/user.h"
#include "../check.h"
#include "unit.h"

static void test_users(void) {
  static struct user user;
  static const char passwd[] =
      "root:x:0:0:root:/root:/bin/bash\n"
      "broken\n"
      "half:x:12\n"
      "badid:x:abc:1:::\n"
      "minus:x:4294967295:1::/:/bin/sh\n"
      "odd:x:7:7:a:b:c:relative\n"
      "user:x:1000:1001:Some One,,,:/home/user:\n"
      "last:x:5:6::/last:/bin/last";
  CHECK(user_find(passwd, "root", &user) && user.uid == 0 && strcmp(user.shell, "/bin/bash") == 0);
  CHECK(user_find(passwd, "user", &user) && user.uid == 1000 && user.gid == 1001);
  CHECK(strcmp(user.home, "/home/user") == 0 && strcmp(user.shell, "/bin/sh") == 0);
  CHECK(user_find(passwd, "last", &user) && user.uid == 5 && strcmp(user.home, "/last") == 0);
  CHECK(!user_find(passwd, "use", &user) && !user_find(passwd, "users", &user));
  CHECK(!user_find(passwd, "half", &user) && !user_find(passwd, "badid", &user));
  CHECK(!user_find(passwd, "minus", &user) && !user_find("", "root", &user));
  CHECK(!user_find(passwd, "", &user) && !user_find(passwd, "broken", &user));

  CHECK(user_find(passwd, "user", &user));
  user_find_groups("a:x:10:root,user\nb:x:11:users,xuser\nc:x:1001:user\nd:x:12:user\n"
                   "bad:x:zz:user\ne:x:13:a,user,b\nf:x:14:", &user);
  CHECK(user.group_count == 4);
  CHECK(user.groups[0] == 1001 && user.groups[1] == 10 && user.groups[2] == 12 &&
        user.groups[3] == 13);
  static char many[40000];
  size_t length = 0;
  for (int i = 0; i < 600; i++) {
    length += (size_t)snprintf(many + length, sizeof many - length, "g%d:x:%d:user\n", i, 2000 + i);
  }
  user_find_groups(many, &user);
  CHECK(user.group_count == USER_GROUPS_MAX);
}

/* As a container's configuration names them. */
static void test_numbers(void) {
  static struct user user;
  static const char passwd[] = "root:x:0:0:root:/root:/bin/bash\n5:x:9:9::/five:/bin/sh\n"
                               "app:x:1000:1001::/srv:/bin/sh\n";
  CHECK(user_find_or_make(passwd, "app", &user) && user.uid == 1000);
  CHECK(user_find_or_make(passwd, "1000", &user) && strcmp(user.name, "app") == 0);
  CHECK(user.gid == 1001 && strcmp(user.home, "/srv") == 0);
  CHECK(user_find_or_make(passwd, "5", &user) && user.uid == 9);
  CHECK(user_find_or_make(passwd, "70000", &user) && user.uid == 70000 && user.gid == 0);
  CHECK(strcmp(user.name, "70000") == 0 && strcmp(user.home, "/") == 0 && user.group_count == 1);
  CHECK(user_find_or_make("", "0", &user) && user.uid == 0);
  CHECK(!user_find_or_make(passwd, "ghost", &user) && !user_find_or_make(passwd, "", &user));
  CHECK(!user_find_or_make(passwd, "4294967295", &user) && !user_find_or_make(passwd, "-1", &user));
  CHECK(!user_find_or_make(passwd, "12x", &user));

  static const char group[] = "root:x:0:\nbroken\nstaff:x:50:app,root\nplain:x:51\nbad:x:zz:\n";
  CHECK(user_find(passwd, "app", &user));
  user_find_groups(group, &user);
  CHECK(user.group_count == 2);
  CHECK(user_take_group(group, "staff", &user) && user.gid == 50 && user.group_count == 1);
  CHECK(user.groups[0] == 50);
  CHECK(user_take_group(group, "plain", &user) && user.gid == 51);
  CHECK(user_take_group(group, "12345", &user) && user.gid == 12345);
  CHECK(!user_take_group(group, "ghost", &user) && !user_take_group(group, "bad", &user));
  CHECK(!user_take_group(group, "", &user) && !user_take_group("", "4294967295", &user));
}

void unit_users(void) {
  test_numbers();
  test_users();
}
