/* See watch_tree.h. */
#include "watch_tree.h"

#include <stdlib.h>
#include <string.h>

#define FOLDERS_FIRST 16u

/* Index of the first folder whose number is not below this one. */
static size_t place_of(const struct watch_tree *tree, int number) {
  size_t low = 0;
  size_t high = tree->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (tree->folders[middle].number < number) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

struct watch_folder *watch_tree_find(const struct watch_tree *tree, int number) {
  size_t place = place_of(tree, number);
  bool found = place < tree->count && tree->folders[place].number == number;
  return found ? &tree->folders[place] : NULL;
}

struct watch_folder *watch_tree_child(const struct watch_tree *tree, int parent, const char *name) {
  for (size_t i = 0; i < tree->count; i++) {
    struct watch_folder *folder = &tree->folders[i];
    if (folder->parent == parent && strcmp(folder->name, name) == 0) return folder;
  }
  return NULL;
}

static bool make_room(struct watch_tree *tree) {
  if (tree->count < tree->capacity) return true;
  if (tree->count >= WATCH_FOLDERS_MAX) return false;
  size_t capacity = tree->capacity > 0 ? tree->capacity * 2 : FOLDERS_FIRST;
  if (capacity > WATCH_FOLDERS_MAX) capacity = WATCH_FOLDERS_MAX;
  struct watch_folder *larger = realloc(tree->folders, capacity * sizeof *larger);
  if (larger == NULL) return false;
  tree->folders = larger;
  tree->capacity = capacity;
  return true;
}

bool watch_tree_put(struct watch_tree *tree, int number, int parent, const char *name) {
  char *copy = strdup(name);
  if (copy == NULL) return false;
  struct watch_folder *known = watch_tree_find(tree, number);
  if (known != NULL) {
    free(known->name);
    known->parent = parent;
    known->name = copy;
    return true;
  }
  if (!make_room(tree)) {
    free(copy);
    return false;
  }
  size_t place = place_of(tree, number);
  struct watch_folder *at = &tree->folders[place];
  memmove(at + 1, at, (tree->count - place) * sizeof *at);
  at->number = number;
  at->parent = parent;
  at->name = copy;
  tree->count++;
  return true;
}

static bool is_within(const struct watch_tree *tree, int number, int above) {
  for (unsigned depth = 0; depth < WATCH_DEPTH_MAX && number != WATCH_ROOT; depth++) {
    if (number == above) return true;
    const struct watch_folder *folder = watch_tree_find(tree, number);
    if (folder == NULL) return false;
    number = folder->parent;
  }
  return false;
}

void watch_tree_remove(struct watch_tree *tree, int number) {
  struct watch_folder *folder = watch_tree_find(tree, number);
  if (folder == NULL) return;
  free(folder->name);
  size_t after = tree->count - (size_t)(folder - tree->folders) - 1;
  memmove(folder, folder + 1, after * sizeof *folder);
  tree->count--;
}

size_t watch_tree_take(struct watch_tree *tree, int above, int *numbers) {
  size_t count = 0;
  for (size_t i = 0; i < tree->count; i++) {
    if (is_within(tree, tree->folders[i].number, above)) numbers[count++] = tree->folders[i].number;
  }
  for (size_t i = 0; i < count; i++) watch_tree_remove(tree, numbers[i]);
  return count;
}

void watch_tree_clear(struct watch_tree *tree) {
  for (size_t i = 0; i < tree->count; i++) free(tree->folders[i].name);
  free(tree->folders);
  memset(tree, 0, sizeof *tree);
}

/* Puts "/" and `text` before what is at `*start`. */
static bool put_before(char *path, size_t *start, const char *text) {
  size_t length = strlen(text);
  if (length + 1 > *start) return false;
  *start -= length + 1;
  path[*start] = '/';
  memcpy(path + *start + 1, text, length);
  return true;
}

bool watch_tree_path(const struct watch_tree *tree, int number, const char *root, const char *entry,
                     char *path, size_t capacity) {
  size_t start = capacity - 1;
  path[start] = '\0';
  if (entry != NULL && !put_before(path, &start, entry)) return false;
  for (unsigned depth = 0; depth < WATCH_DEPTH_MAX; depth++) {
    const struct watch_folder *folder = watch_tree_find(tree, number);
    if (folder == NULL) return false;
    if (folder->parent != WATCH_ROOT) {
      if (!put_before(path, &start, folder->name)) return false;
      number = folder->parent;
      continue;
    }
    size_t length = strcmp(root, "/") == 0 ? 0 : strlen(root);
    if (length > start) return false;
    start -= length;
    memcpy(path + start, root, length);
    memmove(path, path + start, capacity - start);
    if (path[0] == '\0') strcpy(path, "/");
    return true;
  }
  return false;
}
