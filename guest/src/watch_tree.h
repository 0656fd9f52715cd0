/*
 * The folders of a watch: which number of inotify's is which folder. Plain memory, no I/O.
 *
 * Invariants: at most WATCH_FOLDERS_MAX, sorted by number; a name is one component; the root has neither
 * parent nor name.
 */
#ifndef PERDURE_WATCH_TREE_H
#define PERDURE_WATCH_TREE_H

#include <stdbool.h>
#include <stddef.h>

#include "protocol.h"

#define WATCH_ROOT (-1) /* the parent of the root */
#define WATCH_DEPTH_MAX 1024u

struct watch_folder {
  int number;
  int parent;
  char *name;
};

struct watch_tree {
  struct watch_folder *folders;
  size_t count;
  size_t capacity;
};

/* Adds a folder, or says anew where the one of this number is. False where there are too many. */
bool watch_tree_put(struct watch_tree *tree, int number, int parent, const char *name);
/* NULL where there is none. */
struct watch_folder *watch_tree_find(const struct watch_tree *tree, int number);
struct watch_folder *watch_tree_child(const struct watch_tree *tree, int parent, const char *name);
/*
 * Takes the folder `above` and all that are in it at any depth out of the tree. Their numbers go to `numbers`,
 * which has room for WATCH_FOLDERS_MAX; how many there are.
 */
size_t watch_tree_take(struct watch_tree *tree, int above, int *numbers);
void watch_tree_remove(struct watch_tree *tree, int number);
void watch_tree_clear(struct watch_tree *tree);
/*
 * The path of `entry` (NULL: of the folder itself), the root's being `root`. False where it does not fit, or
 * leads nowhere.
 */
bool watch_tree_path(const struct watch_tree *tree, int number, const char *root, const char *entry,
                     char *path, size_t capacity);

#endif
