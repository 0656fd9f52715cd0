/* The folders of a watch: where they are, when they move, and how many there may be. */
#include "../../src/watch_tree.h"

#include <stdio.h>
#include <string.h>

#include "../check.h"
#include "unit.h"

static bool is_path(const struct watch_tree *tree, int number, const char *entry,
                    const char *expected) {
  char path[64];
  return watch_tree_path(tree, number, "/r", entry, path, sizeof path) &&
         strcmp(path, expected) == 0;
}

static void test_paths(void) {
  struct watch_tree tree = {0};
  CHECK(watch_tree_put(&tree, 1, WATCH_ROOT, ""));
  CHECK(watch_tree_put(&tree, 2, 1, "a") && watch_tree_put(&tree, 3, 2, "b"));
  CHECK(watch_tree_put(&tree, 4, 1, "c"));
  CHECK(is_path(&tree, 1, NULL, "/r") && is_path(&tree, 1, "x", "/r/x"));
  CHECK(is_path(&tree, 3, NULL, "/r/a/b") && is_path(&tree, 3, "x", "/r/a/b/x"));
  CHECK(!is_path(&tree, 5, NULL, "/r"));
  char path[64];
  CHECK(watch_tree_path(&tree, 1, "/", NULL, path, sizeof path) && strcmp(path, "/") == 0);
  CHECK(watch_tree_path(&tree, 2, "/", "x", path, sizeof path) && strcmp(path, "/a/x") == 0);
  /* To the byte: "/r/a/b/x" and its end. */
  CHECK(watch_tree_path(&tree, 3, "/r", "x", path, 9) && !watch_tree_path(&tree, 3, "/r", "x", path, 8));
  CHECK(!watch_tree_path(&tree, 3, "/r", "x", path, 3) && !watch_tree_path(&tree, 3, "/r", "x", path, 1));

  CHECK(watch_tree_child(&tree, 2, "b")->number == 3 && watch_tree_child(&tree, 2, "c") == NULL);
  CHECK(watch_tree_put(&tree, 2, 4, "moved") && tree.count == 4);
  CHECK(is_path(&tree, 3, "x", "/r/c/moved/b/x"));
  watch_tree_clear(&tree);
  CHECK(tree.count == 0 && !is_path(&tree, 1, NULL, "/r"));
}

static void test_removal(void) {
  static int numbers[WATCH_FOLDERS_MAX];
  struct watch_tree tree = {0};
  watch_tree_put(&tree, 1, WATCH_ROOT, "");
  watch_tree_put(&tree, 7, 1, "a");
  watch_tree_put(&tree, 5, 7, "low"); /* in no order */
  watch_tree_put(&tree, 9, 5, "lower");
  watch_tree_put(&tree, 8, 1, "stays");
  CHECK(watch_tree_find(&tree, 5) != NULL && watch_tree_find(&tree, 6) == NULL);
  CHECK(watch_tree_take(&tree, 7, numbers) == 3);
  CHECK(numbers[0] == 5 && numbers[1] == 7 && numbers[2] == 9 && tree.count == 2);
  CHECK(is_path(&tree, 8, NULL, "/r/stays"));
  CHECK(watch_tree_take(&tree, 7, numbers) == 0);
  watch_tree_remove(&tree, 8);
  watch_tree_remove(&tree, 8);
  CHECK(tree.count == 1);
  watch_tree_clear(&tree);
}

static void test_limits(void) {
  struct watch_tree tree = {0};
  char name[16];
  watch_tree_put(&tree, 0, WATCH_ROOT, "");
  for (int i = 1; i < (int)WATCH_FOLDERS_MAX; i++) {
    snprintf(name, sizeof name, "%d", i);
    if (!watch_tree_put(&tree, i, i - 1, name)) break;
  }
  CHECK(tree.count == WATCH_FOLDERS_MAX && !watch_tree_put(&tree, 1 << 20, 0, "x"));
  CHECK(watch_tree_put(&tree, 5, 0, "known"));
  /* Deeper than any that is told, or in a circle: no path, and no end of the world. */
  static char path[64u << 10];
  CHECK(!watch_tree_path(&tree, (int)WATCH_FOLDERS_MAX - 1, "/", NULL, path, sizeof path));
  watch_tree_put(&tree, 5, 6, "circle");
  CHECK(!watch_tree_path(&tree, 6, "/", NULL, path, sizeof path));
  watch_tree_clear(&tree);
}

void unit_watch_trees(void) {
  test_paths();
  test_removal();
  test_limits();
}
