/*
 * CONNECT: a stream to a TCP port inside. 127.0.0.1 is tried first, then ::1.
 *
 * Invariants:
 *  C1 Nothing here waits: the socket never blocks, connecting has a deadline.
 *  C2 What the host sends is held within its credit; of what the program sends nothing is held but in its
 *     own socket, which is read for the credit at hand.
 *  C3 A side that ended in order ends only itself: END, or a shutdown for writing. Whatever else ends a
 *     connection (CANCEL, the end of the epoch, a program that takes no more) is a reset, so that no
 *     program takes half of something for the whole.
 *  C4 After the RESPONSE one END, and at most one more, not ok, where the first was.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "byte_queue.h"
#include "connection.h"
#include "operation.h"
#include "stream.h"

#define WINDOW (64u << 10)
#define DEADLINE_MS 10000u
#define DEADLINE_MS_MAX 600000u
/* How long a program that reads nothing of the rest is waited for when both sides have ended. */
#define LINGER_MS 5000u

struct connection {
  struct stream *stream;
  struct source socket;
  struct byte_queue queue; /* for the program */
  uint16_t port;
  bool is_last_try; /* ::1 */
  bool connected;
  bool readable; /* worth a try */
  bool ended;    /* END was sent */
  bool shut;     /* the host's END was passed on */
  bool broken;   /* the program takes nothing any more */
};

static unsigned connections_open;

void reset_on_close(int socket) {
  struct linger at_once = {.l_onoff = 1, .l_linger = 0};
  setsockopt(socket, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

static void free_connection(struct connection *connection) {
  source_close(&connection->socket);
  byte_queue_close(&connection->queue);
  free(connection);
  connections_open--;
}

/* Before the RESPONSE. */
static void refuse(struct connection *connection, enum status status, const char *message) {
  stream_answer(connection->stream, status, message);
  free_connection(connection);
}

static void send_end(uint32_t stream, enum status status) {
  answer_begin(status);
  answer_send(FRAME_END, stream);
}

/* Both directions are over at once. */
static void reset(struct connection *connection) {
  uint32_t id = connection->stream->id;
  reset_on_close(connection->socket.fd);
  stream_close(connection->stream);
  free_connection(connection);
  send_end(id, STATUS_CONNECTION_RESET);
}

/* True where it was the end of both directions: nothing of the connection is left. */
static bool is_over(struct connection *connection) {
  if (!connection->ended) return false;
  if (connection->broken) {
    reset(connection);
    return true;
  }
  if (connection->shut) {
    stream_close(connection->stream);
    free_connection(connection);
    return true;
  }
  if (connection->stream->host_ended) stream_set_deadline(connection->stream, LINGER_MS);
  return false;
}

/* Grants in quarters of the window, so that not every small write costs a frame. */
static void grant_room(struct connection *connection) {
  struct stream *stream = connection->stream;
  if (stream->host_ended || connection->broken) return;
  size_t room = WINDOW - connection->queue.length - (size_t)stream->receive_credit;
  if (room >= WINDOW / 4) stream_grant(stream, room);
}

static void break_off(struct connection *connection) {
  connection->broken = true;
  connection->readable = true; /* what it said before is still there, and then its end */
  byte_queue_close(&connection->queue);
}

static void write_queue(struct connection *connection) {
  while (connection->queue.length > 0) {
    struct bytes front = byte_queue_front(&connection->queue);
    ssize_t put = send(connection->socket.fd, front.at, front.length, MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EAGAIN) break;
    if (put <= 0) {
      break_off(connection);
      return;
    }
    byte_queue_drop(&connection->queue, (size_t)put);
  }
  grant_room(connection);
  if (connection->queue.length > 0 || !connection->stream->host_ended || connection->shut) return;
  connection->shut = true;
  shutdown(connection->socket.fd, SHUT_WR);
}

static void try_connect(struct connection *connection);
static void try_next(struct connection *connection, int error);

/* It is there: from now on its bytes flow. */
static void connected(struct connection *connection) {
  if (!byte_queue_open(&connection->queue, WINDOW)) {
    reset_on_close(connection->socket.fd);
    refuse(connection, STATUS_INTERNAL, "No memory");
    return;
  }
  int yes = 1;
  setsockopt(connection->socket.fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  timer_disarm(&connection->stream->deadline);
  connection->connected = true;
  connection->readable = true;
  answer_status(connection->stream->id, STATUS_OK, NULL);
  write_queue(connection); /* nothing yet, but perhaps the host's end */
}

static void accepted(struct connection *connection) {
  struct sockaddr_in6 ours, theirs; /* the longer of both */
  socklen_t length = sizeof ours, same = sizeof theirs;
  memset(&ours, 0, sizeof ours);
  memset(&theirs, 0, sizeof theirs);
  getsockname(connection->socket.fd, (struct sockaddr *)&ours, &length);
  getpeername(connection->socket.fd, (struct sockaddr *)&theirs, &same);
  /* The kernel may give the port asked for to this end: then it is connected to itself, and nobody listens. */
  if (length == same && memcmp(&ours, &theirs, length) == 0) {
    reset_on_close(connection->socket.fd);
    try_next(connection, ECONNREFUSED);
    return;
  }
  connected(connection);
}

/* `error` is why this address did not do. */
static void try_next(struct connection *connection, int error) {
  source_close(&connection->socket);
  if (error == ECONNRESET || error == ECONNABORTED) {
    refuse(connection, STATUS_CONNECTION_RESET, NULL); /* it was taken, and broken off at once */
    return;
  }
  if (!connection->is_last_try) {
    connection->is_last_try = true;
    try_connect(connection);
    return;
  }
  /* A machine without IPv6 has nobody listening on it. */
  if (error == ECONNREFUSED || error == EAFNOSUPPORT || error == EADDRNOTAVAIL) {
    refuse(connection, STATUS_PORT_REFUSED, NULL);
  } else if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) {
    refuse(connection, STATUS_TOO_MANY, "No further socket can be opened");
  } else {
    refuse(connection, STATUS_INTERNAL, strerror(error));
  }
}

static void socket_ready(struct source *source, uint32_t events) {
  struct connection *connection = CONTAINER_OF(source, struct connection, socket);
  if (!connection->connected) {
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(source->fd, SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) {
      try_next(connection, error);
    } else if ((events & EPOLLOUT) != 0) {
      accepted(connection);
    }
    return;
  }
  connection->readable = true;
  if ((events & EPOLLERR) != 0) break_off(connection);
  if (!connection->broken) write_queue(connection);
  is_over(connection);
}

static void try_connect(struct connection *connection) {
  struct sockaddr_in old = {.sin_family = AF_INET,
                            .sin_port = htons(connection->port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  struct sockaddr_in6 new = {
      .sin6_family = AF_INET6, .sin6_port = htons(connection->port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
  int family = connection->is_last_try ? AF_INET6 : AF_INET;
  int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    try_next(connection, errno);
    return;
  }
  source_open(&connection->socket, fd, socket_ready);
  int done = connection->is_last_try ? connect(fd, (struct sockaddr *)&new, sizeof new)
                                     : connect(fd, (struct sockaddr *)&old, sizeof old);
  if (done != 0 && errno != EINPROGRESS) {
    try_next(connection, errno);
  } else if (!source_watch(&connection->socket, EPOLLIN | EPOLLOUT | EPOLLET)) {
    refuse(connection, STATUS_INTERNAL, "Cannot watch a socket");
  } else if (done == 0) {
    accepted(connection);
  }
}

static void take_data(struct stream *stream, struct bytes bytes) {
  struct connection *connection = stream->owner;
  if (connection->broken) return;
  byte_queue_put(&connection->queue, bytes); /* fits: the credit is the room */
  write_queue(connection);
  is_over(connection);
}

static void take_end(struct stream *stream) {
  struct connection *connection = stream->owner;
  if (!connection->connected) return; /* seen when it is */
  if (!connection->broken) write_queue(connection);
  is_over(connection);
}

static size_t fill(struct stream *stream, uint8_t *payload, size_t room) {
  struct connection *connection = stream->owner;
  if (!connection->connected || !connection->readable || connection->ended || room == 0) return 0;
  ssize_t got = recv(connection->socket.fd, payload, room, 0);
  if (got > 0) return (size_t)got;
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
    connection->readable = errno == EINTR;
    return 0;
  }
  if (got < 0 || connection->broken) {
    reset(connection);
    return 0;
  }
  connection->ended = true;
  send_end(stream->id, STATUS_OK);
  is_over(connection);
  return 0;
}

static void expire(struct stream *stream) {
  struct connection *connection = stream->owner;
  reset_on_close(connection->socket.fd);
  if (connection->connected) { /* nobody waits for it */
    stream_close(stream);
    free_connection(connection);
  } else {
    refuse(connection, STATUS_DEADLINE_EXCEEDED, "Nobody took the connection in time");
  }
}

static void closed(struct stream *stream) {
  struct connection *connection = stream->owner;
  reset_on_close(connection->socket.fd);
  free_connection(connection);
}

static const struct stream_handler HANDLER = {
    .data = take_data, .end = take_end, .fill = fill, .expire = expire, .close = closed};

/* With a stream, and no socket yet. NULL: the request was answered. */
static struct connection *open_connection(uint32_t id, enum operation op) {
  if (connections_open >= CONNECTIONS_MAX) {
    answer_status(id, STATUS_TOO_MANY, "192 connections are open");
    return NULL;
  }
  struct connection *connection = calloc(1, sizeof *connection);
  if (connection == NULL) {
    answer_status(id, STATUS_INTERNAL, "No memory");
    return NULL;
  }
  connection->stream = stream_open(id, op, &HANDLER, connection);
  if (connection->stream == NULL) {
    free(connection);
    return NULL;
  }
  connections_open++;
  connection->socket.fd = -1;
  return connection;
}

void connection_carry(uint32_t stream, enum operation op, int socket) {
  struct connection *connection = open_connection(stream, op);
  if (connection == NULL) {
    reset_on_close(socket);
    close(socket);
    return;
  }
  source_open(&connection->socket, socket, socket_ready);
  if (source_watch(&connection->socket, EPOLLIN | EPOLLOUT | EPOLLET)) {
    connected(connection);
    return;
  }
  reset_on_close(socket);
  refuse(connection, STATUS_INTERNAL, "Cannot watch a socket");
}

void operation_connect(uint32_t id, const struct request *request) {
  uint64_t port = request_number(request, TAG_PORT, 0);
  if (port < 1 || port > 65535) {
    answer_status(id, STATUS_BAD_REQUEST, "A port is a number from 1 to 65535");
    return;
  }
  struct connection *connection = open_connection(id, OP_CONNECT);
  if (connection == NULL) return;
  connection->port = (uint16_t)port;
  uint64_t deadline_ms = request_number(request, TAG_DEADLINE_MS, DEADLINE_MS);
  stream_set_deadline(connection->stream,
                      deadline_ms < DEADLINE_MS_MAX ? deadline_ms : DEADLINE_MS_MAX);
  try_connect(connection);
}
