/*
 * Trees without cgroups: every process is started in a session of its own, and its tree is what is
 * still in that session. Weaker than a cgroup (a program may leave its session); for tests as a
 * plain user only.
 */
#ifndef PERDURE_SESSION_H
#define PERDURE_SESSION_H

#include <sys/types.h>

/* Direct children of `parent`. */
void children_each(pid_t parent, void (*visit)(pid_t pid, void *context), void *context);
void session_each_process(pid_t session, void (*visit)(pid_t pid, void *context), void *context);

#endif
