/*
 * The resolver inside: answers programs' questions about names (dns.h) on RESOLVER_ADDRESS, over UDP. No answer
 * is ever longer than what fits there.
 *
 * Invariants: it answers from what it knows, at once, and asks nobody; what arrives faster than it is answered
 * is the kernel's to drop.
 */
#ifndef PERDURE_RESOLVER_H
#define PERDURE_RESOLVER_H

#include <stdbool.h>
#include <stdint.h>

/* Not 127.0.0.1: a program inside may be a name server itself. */
#define RESOLVER_ADDRESS 0x7fc61235u /* 127.198.18.53 */
#define RESOLVER_PORT 53u
#define RESOLVER_CONFIGURATION "nameserver 127.198.18.53\n"

/* False with errno. */
bool resolver_open(void);
/* The name that an address stands for, or NULL. */
const char *resolver_name(uint32_t address);

#endif
