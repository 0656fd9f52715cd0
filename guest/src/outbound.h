/*
 * The way out: connections that programs inside make to elsewhere (redirect.h), told to the host one by one on
 * the stream of OUTBOUND; each that the host wants is carried by a stream of its own (CARRY).
 *
 * Invariants:
 *  W1 Closed unless the host holds OUTBOUND open: what is made without is reset at once, and so is whatever
 *     waits when OUTBOUND ends. The host opens it when it knows what is allowed, and before the thaw.
 *  W2 Nothing of a connection is read before the host carries it. What nobody carries in time is reset.
 *  W3 At most WAITING_MAX wait; further ones wait in the kernel's queue.
 */
#ifndef PERDURE_OUTBOUND_H
#define PERDURE_OUTBOUND_H

/* Prepares the machine for it; says on the console what it lacks. After loop_open. */
void outbound_open(void);

#endif
