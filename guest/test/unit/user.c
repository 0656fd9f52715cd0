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

void unit_users(void) {
  test_users();
}
