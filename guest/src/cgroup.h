/*
 * The cgroup tree: `workload` with one cgroup `p<ID>` per process, `hooks`, and `agent` for PID 1.
 * Folders are opened once at start and everything goes through them, so that a workload that mounts
 * something over /sys changes nothing here.
 *
 * Without cgroups (tests as a plain user) every descriptor is -1 and callers fall back to sessions.
 */
#ifndef PERDURE_CGROUP_H
#define PERDURE_CGROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Makes the tree under `base`, moves the agent into its part where `with_agent`. */
bool cgroups_open(const char *base, bool with_agent);
/* Removes what is empty (tests). */
void cgroups_remove(void);

int cgroup_workload(void);
int cgroup_hooks(void);

/* The folder of the process's cgroup, or -1 with errno. */
int cgroup_open_process(uint64_t process);
void cgroup_remove_process(uint64_t process);

enum cgroup_answer { CGROUP_NO, CGROUP_YES, CGROUP_GONE };
/*
 * A descriptor of cgroup.events: EPOLLPRI tells of a change. `cgroup_event` reads it and takes its
 * notice with it: who is not told of changes has a descriptor of its own, or uses `cgroup_look`.
 */
int cgroup_open_events(int folder);
enum cgroup_answer cgroup_event(int events, const char *key);
enum cgroup_answer cgroup_look(int folder, const char *key);

bool cgroup_kill(int folder);
/* A descriptor of cgroup.freeze, or -1. */
int cgroup_open_freeze(int folder);
bool cgroup_set_frozen(int freeze, bool frozen);
/* Every process of the cgroup and of those below it. */
void cgroup_each_process(int folder, void (*visit)(pid_t pid, void *context), void *context);

#endif
