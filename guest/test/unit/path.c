/* Paths: what is taken, and what an errno means. */
#include <errno.h>
#include <string.h>

#include "../../src/path.h"
#include "../check.h"
#include "unit.h"

static void test_paths(void) {
  CHECK(path_check(TEXT("/")) == NULL);
  CHECK(path_check(TEXT("/a/b/c")) == NULL);
  CHECK(path_check(TEXT("/a//b/./c/")) == NULL);
  CHECK(path_check(TEXT("/..a/b..")) == NULL);
  CHECK(path_check(TEXT("/...")) == NULL);
  CHECK(path_check(TEXT("")) != NULL);
  CHECK(path_check(TEXT("a/b")) != NULL);
  CHECK(path_check(TEXT("/..")) != NULL);
  CHECK(path_check(TEXT("/a/../b")) != NULL);
  CHECK(path_check(TEXT("/a/..")) != NULL);
  CHECK(path_check(TEXT("/a/../")) != NULL);
  CHECK(path_check(TEXT("/a\0b")) != NULL);
  static uint8_t name[PATH_BYTES_MAX + 1];
  memset(name, 'x', sizeof name);
  name[0] = '/';
  CHECK(path_check((struct bytes){name, PATH_BYTES_MAX}) == NULL);
  CHECK(path_check((struct bytes){name, PATH_BYTES_MAX + 1}) != NULL);
  CHECK(path_status(ENOENT) == STATUS_PATH_NOT_FOUND && path_status(ELOOP) == STATUS_PATH_IS_LINK);
  CHECK(path_status(ENOSPC) == STATUS_DISK_FULL && path_status(EACCES) == STATUS_PATH_DENIED);
}

void unit_paths(void) {
  test_paths();
}
