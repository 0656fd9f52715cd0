/*
 * Whether the folder of resume hooks is known to hold nothing, told without a wait for a file system:
 * after a wake a fork costs more than all else before the thaw, and most agents have no hooks.
 *
 * Invariants:
 *  F1 Only what is in the kernel's caches is looked at; where that does not suffice the answer is "not
 *     known", and a child lists the folder.
 *  F2 The folder counts as empty only while it is the very one that was listed and its time of change
 *     is the one from before the listing, then long past: so nothing was put in since.
 */
#ifndef PERDURE_HOOK_FOLDER_H
#define PERDURE_HOOK_FOLDER_H

#include <stdbool.h>

/* Lists it. Once, before the loop. */
void hook_folder_open(void);
/* True: it is absent or holds nothing. False: list it, then tell what was found. */
bool hook_folder_is_empty(void);
void hook_folder_listed(bool empty);

#endif
