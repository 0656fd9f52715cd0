/*
 * What the kernel keeps time by, and how fast it takes the time stamp counter to count. The host may move
 * the counter at a wake; it must know whether the kernel's clocks follow it, and at what rate. Where a VM
 * goes on on a host whose counter runs at another rate, the kernel must keep time by something else.
 */
#ifndef PERDURE_CLOCK_SOURCE_H
#define PERDURE_CLOCK_SOURCE_H

#include "field.h"

/* Opens the kernel's file and takes the first reading of the counter; once, before the loop. */
void clock_source_open(void);
/* name: as the kernel names its source; value: its rate of the counter in Hz, left out where not known yet. */
void clock_source_put(struct field_writer *answer);

#endif
