/*
 * The port: bytes in and out of the virtio-serial device (or a socket in tests), and the epoch.
 *
 * Invariants:
 *  K1 Order out: the frame that was begun, then control frames in order, then DATA. DATA is made
 *     only at the moment when the port takes it, so what waits here is bounded by requests.
 *  K2 The port is watched edge-triggered: while the host is away poll() says HUP all the time.
 *  K3 Outside of an epoch nothing is sent. An epoch begins with a RESYNC and ends with the next,
 *     when the host is seen to be away, or when the host breaks the protocol.
 *  K4 While more than QUEUE_MAX bytes of control frames wait, nothing more is read.
 *  K5 The kernel tells of a host that comes or goes later than of its bytes. So "nobody there"
 *     ends the epoch only where it is still so a moment later, and only where somebody had been
 *     there since the RESYNC (or for seconds nobody came).
 *  K6 A port that has a host and takes nothing for five seconds is dead (port.h): the host never
 *     stops reading. It is closed, its driver bound anew, and opened again, without an epoch.
 */
#ifndef PERDURE_LINK_H
#define PERDURE_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "field.h"
#include "protocol.h"

/* Takes the descriptor. `on_gone` is called when a socket was closed for good (tests only). */
bool link_open(int fd, void (*on_gone)(void));
/* Moves what can be moved now; true where another turn is due at once. */
bool link_pump(void);

void link_send(enum frame_type type, uint32_t stream, struct bytes payload);
void link_send_window(uint32_t stream, uint32_t bytes);
/* The host broke the protocol: everything of this epoch ends, silence until the next RESYNC. */
void link_violation(const char *why);
/* The version of the protocol that the host of this epoch speaks with us. */
uint32_t link_version(void);
/* True where nothing waits to be written. */
bool link_is_flushed(void);

#endif
