/*
 * Connections: a TCP socket inside and the stream that carries its bytes both ways (connect.c). What made the
 * connection, the host (CONNECT) or a program (outbound.c), is past when its bytes begin to flow.
 */
#ifndef PERDURE_CONNECTION_H
#define PERDURE_CONNECTION_H

#include "operation.h"
#include "stream.h"

/* The socket is closed so that its other end sees a reset. */
void reset_on_close(int socket);
/* A stream of `op` for a connection that is there; owns `socket`, whatever becomes of it. */
void connection_carry(uint32_t stream, enum operation op, int socket);

#endif
