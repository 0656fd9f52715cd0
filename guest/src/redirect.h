/*
 * The way out, as far as the kernel is concerned: no card and no packet filter, but every address is this
 * machine's own. TCP to any of them arrives at one listener, whatever the port, and `getsockname` of what it
 * accepts says where it was to go; all else (UDP, ICMP) is refused where it is sent, with EACCES.
 *
 *   addresses  a local route for everything in the table of local addresses (AnyIP)
 *   what for   rules before it: 127.0.0.0/8 as ever; TCP to that table; the rest prohibited
 *   where to   a BPF program that chooses the socket of a new connection (BPF_PROG_TYPE_SK_LOOKUP, Linux 5.9)
 *
 * What programs inside change of it is their own loss: what leaves the machine is decided on the host.
 */
#ifndef PERDURE_REDIRECT_H
#define PERDURE_REDIRECT_H

/* The listener, not blocking; -1 with errno, and `failed` says at what. */
int redirect_open(const char **failed);

#endif
