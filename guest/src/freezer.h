/*
 * FREEZE and THAW of the workload cgroup.
 *
 * Invariants:
 *  Z1 From the moment a freeze is asked for until a thaw is asked for, pausable timers stand still.
 *  Z2 A freeze that was not reached in time stays asked for; only THAW takes it back.
 */
#ifndef PERDURE_FREEZER_H
#define PERDURE_FREEZER_H

#include <stdbool.h>
#include <stdint.h>

bool freezer_open(void);
/* What cgroup.events says. */
bool freezer_is_frozen(void);
/*
 * Nanoseconds of CLOCK_MONOTONIC since the workload was first seen frozen, or since this was last asked; 0 where
 * that is not known. Later than the freeze of each thread, so never more than what passed for it.
 */
uint64_t freezer_take_passed_ns(void);
/* A thaw without an answer, for a shutdown. */
void freezer_thaw(void);

#endif
