/*
 * The virtio-serial port of the guest link: finding and opening it, and putting a dead one into
 * operation again.
 *
 * A VMM that closes a connection while it could not write all of the guest's bytes may never give
 * back that entry of the port's ring. After as many of these as the ring is long nothing can be
 * sent any more, over any connection. Binding the driver anew makes new rings.
 */
#ifndef PERDURE_PORT_H
#define PERDURE_PORT_H

/* A descriptor, nonblocking, or -1 with errno (ENOENT: not there, or not yet). */
int port_open(void);
/* Takes the driver off the device and puts it on again. Blocks: for children only. */
void port_rebind(void);

#endif
