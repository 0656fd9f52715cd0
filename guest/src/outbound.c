/* See outbound.h. */
#include "outbound.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent.h"
#include "connection.h"
#include "name_table.h"
#include "operation.h"
#include "redirect.h"
#include "resolver.h"
#include "stream.h"
#include "text_file.h"

#define WAITING_MAX 64u
#define WAITING_MS 60000u
#define ACCEPTS_PER_TURN 32
#define LENGTH_BYTES 4u
#define RESOLVER_FILE "/etc/resolv.conf"

/* One that no stream carries yet. */
struct waiting {
  struct waiting *next;
  uint64_t id;
  int socket;
  uint32_t address;
  uint16_t port;
  bool is_told;
  struct timer timeout;
};

static struct source listener = {.fd = -1};
static struct waiting *first;
static unsigned count;
static uint64_t last_id;
static struct stream *host; /* OUTBOUND, or NULL */

static void accept_some(struct source *source, uint32_t events);

static void refuse(int socket) {
  reset_on_close(socket);
  close(socket);
}

/* Takes it out of the list; the socket is the caller's. */
static int take(struct waiting *waiting) {
  struct waiting **at = &first;
  while (*at != waiting) at = &(*at)->next;
  *at = waiting->next;
  count--;
  timer_disarm(&waiting->timeout);
  int socket = waiting->socket;
  free(waiting);
  source_watch(&listener, EPOLLIN);
  return socket;
}

static void nobody_came(struct timer *timer) {
  refuse(take(CONTAINER_OF(timer, struct waiting, timeout)));
}

/* An address of the table whose name is forgotten leads nowhere. */
static bool leads_nowhere(uint32_t address) {
  bool is_of_table = address - NAMES_FIRST_ADDRESS < NAMES_ADDRESSES;
  return is_of_table && resolver_name(address) == NULL;
}

static void keep(int socket) {
  struct sockaddr_in wanted;
  socklen_t length = sizeof wanted;
  memset(&wanted, 0, sizeof wanted);
  bool is_known = getsockname(socket, (struct sockaddr *)&wanted, &length) == 0;
  uint32_t address = ntohl(wanted.sin_addr.s_addr);
  struct waiting *waiting =
      host != NULL && is_known && !leads_nowhere(address) ? calloc(1, sizeof *waiting) : NULL;
  if (waiting == NULL) {
    refuse(socket);
    return;
  }
  waiting->id = ++last_id;
  waiting->socket = socket;
  waiting->address = address;
  waiting->port = ntohs(wanted.sin_port);
  timer_open(&waiting->timeout, true, nobody_came);
  timer_arm(&waiting->timeout, WAITING_MS);
  struct waiting **at = &first;
  while (*at != NULL) at = &(*at)->next;
  *at = waiting;
  count++;
}

static void accept_some(struct source *source, uint32_t events) {
  (void)events;
  for (int i = 0; i < ACCEPTS_PER_TURN && count < WAITING_MAX; i++) {
    int socket = accept4(source->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket < 0) return;
    keep(socket);
  }
  if (count >= WAITING_MAX) source_unwatch(source);
}

/* The next one as a record; 0 where there is none, or no room for it. */
static size_t tell_next(struct stream *stream, uint8_t *payload, size_t room) {
  (void)stream;
  struct waiting *waiting = first;
  while (waiting != NULL && waiting->is_told) waiting = waiting->next;
  if (waiting == NULL || room <= LENGTH_BYTES) return 0;
  struct field_writer fields;
  field_writer_open(&fields, payload + LENGTH_BYTES, room - LENGTH_BYTES);
  field_put_number(&fields, TAG_CONNECTION, waiting->id);
  field_put_number(&fields, TAG_ADDRESS, waiting->address);
  field_put_number(&fields, TAG_PORT, waiting->port);
  const char *name = resolver_name(waiting->address);
  if (name != NULL) field_put_string(&fields, TAG_NAME, name);
  if (fields.overflowed) return 0;
  wire_put_u32(payload, (uint32_t)fields.length);
  waiting->is_told = true;
  return LENGTH_BYTES + fields.length;
}

static void host_left(struct stream *stream) {
  (void)stream;
  host = NULL;
  while (first != NULL) refuse(take(first));
}

static const struct stream_handler OUTBOUND = {.fill = tell_next, .close = host_left};

void operation_outbound(uint32_t id, const struct request *request) {
  (void)request;
  if (listener.fd < 0) {
    answer_status(id, STATUS_NOT_SUPPORTED, "This machine has no way out");
  } else if (host != NULL) {
    answer_status(id, STATUS_BAD_REQUEST, "OUTBOUND is open already");
  } else {
    host = stream_open(id, OP_OUTBOUND, &OUTBOUND, NULL);
    if (host != NULL) answer_status(id, STATUS_OK, NULL);
  }
}

void operation_carry(uint32_t id, const struct request *request) {
  uint64_t wanted = request_number(request, TAG_CONNECTION, 0);
  struct waiting *waiting = first;
  while (waiting != NULL && waiting->id != wanted) waiting = waiting->next;
  if (waiting == NULL) {
    answer_status(id, STATUS_CONNECTION_RESET, "There is no such connection, or not any more");
    return;
  }
  connection_carry(id, OP_CARRY, take(waiting));
}

/* Over the image's file, as long as the machine runs: what a program writes there is lost with it. */
static void name_resolver(void) {
  char path[256];
  snprintf(path, sizeof path, "%s/resolv.conf", agent.run_folder);
  int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  size_t length = strlen(RESOLVER_CONFIGURATION);
  bool written = file >= 0 && write(file, RESOLVER_CONFIGURATION, length) == (ssize_t)length;
  if (file >= 0) close(file);
  int target = open(RESOLVER_FILE, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (target >= 0) close(target);
  if (!written || target < 0 || mount(path, RESOLVER_FILE, NULL, MS_BIND, NULL) != 0) {
    fprintf(stderr, "perdure-guest: cannot name the resolver: %s\n", strerror(errno));
  }
}

void outbound_open(void) {
  const char *failed = "";
  int socket = redirect_open(&failed);
  if (socket < 0) {
    fprintf(stderr, "perdure-guest: no way out: cannot %s: %s\n", failed, strerror(errno));
    return;
  }
  source_open(&listener, socket, accept_some);
  if (!source_watch(&listener, EPOLLIN) || !resolver_open()) {
    fprintf(stderr, "perdure-guest: no resolver: %s\n", strerror(errno));
  }
  if (!agent.is_test) name_resolver();
}
