/*
 * Terminals of processes: a pair from the kernel's own devpts, whatever a workload mounts over /dev. The
 * agent's end is read into the output log and written as stdin, like a pair of pipes.
 *
 * Invariants:
 *  T1 The agent's end is open until the main process was reaped and nobody has the other: to close it is
 *     to hang up. Readers that come and go hang nobody up, and a program that closes its own end before it
 *     exits ends by its own code and not by SIGHUP.
 *  T2 The host's END types the end-of-file character. It is typed once, after everything before it.
 */
#ifndef PERDURE_TERMINAL_H
#define PERDURE_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "request.h"

#define TERMINAL_END_MAX 2u

/* Opens where terminals are made; once, before the loop. */
void terminals_open(void);
/* What is wrong with the size that the request names, or NULL. */
const char *terminal_check(const struct request *request);
/* A pair of the size that the request names, the agent's end nonblocking. False with errno. */
bool terminal_open(const struct request *request, int *ours, int *theirs);
/* In the child, after setsid: makes `theirs` the terminal of its session and gives it to the user. */
bool terminal_take(int theirs, uid_t owner);
/* What ends the input after `last_typed` (0: nothing was typed); how many bytes that is. */
size_t terminal_end_text(int ours, uint8_t last_typed, uint8_t text[TERMINAL_END_MAX]);

#endif
