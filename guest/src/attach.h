/*
 * Streams of a process: readers of its output (ATTACH), the writer of its stdin (STDIN), and those
 * who wait for the end of its tree (SIGNAL).
 */
#ifndef PERDURE_ATTACH_H
#define PERDURE_ATTACH_H

#include <stdbool.h>
#include <stdint.h>

#include "loop.h"

struct process;

bool readers_exist(const struct process *process);
/* The offset that the slowest reader is at; false without readers. */
bool readers_oldest(const struct process *process, uint64_t *offset);
/* The process is being forgotten: its streams get an END or a RESPONSE. */
void readers_dismiss(struct process *process);
/* The tree is empty: who waits for that is answered. */
void signal_waiters_answer(struct process *process);

void input_ready(struct source *source, uint32_t events);

#endif
