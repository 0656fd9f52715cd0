/* See link.h. */
#include "link.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frame.h"
#include "job.h"
#include "loop.h"
#include "port.h"
#include "stream.h"

#define READ_CHUNK (64u << 10)
#define READ_PER_TURN (256u << 10)
#define WRITE_PER_TURN (256u << 10)
#define STAGE_BYTES (32u << 10) /* what the virtio port takes in one write */
#define QUEUE_MAX (1u << 20)
#define RELEASE_AFTER_MS 20
#define CHECK_AFTER_MS 100
#define CHECKS_UNCONNECTED_MAX 100
#define CHECKS_STUCK_MAX 50 /* each takes CHECK_AFTER_MS of running time, whatever the clock does */
#define REOPEN_AFTER_MS 20

struct out_frame {
  struct out_frame *next;
  size_t length;
  size_t staged;
  uint8_t bytes[];
};

static struct {
  struct source port;
  bool is_socket;
  bool readable;
  bool writable;
  bool in_epoch;
  uint32_t version; /* of the epoch */
  void (*on_gone)(void);
  struct frame_reader reader;
  struct timer release; /* for bytes that look like the beginning of a RESYNC */
  struct timer check;   /* a second look at a port that does not take or give */
  bool connected;       /* K5: since the RESYNC */
  unsigned checks;
  unsigned stuck;       /* K6: checks in a row that found a host and no room */
  struct timer reopen;
  struct out_frame *first;
  struct out_frame *last;
  size_t queued;
  uint8_t stage[STAGE_BYTES];
  size_t stage_start;
  size_t stage_end;
  bool is_filling; /* DATA is being put at the end of the stage: an END made meanwhile queues */
} link_state;

static void clear_output(void) {
  while (link_state.first != NULL) {
    struct out_frame *next = link_state.first->next;
    free(link_state.first);
    link_state.first = next;
  }
  link_state.last = NULL;
  link_state.queued = 0;
  link_state.stage_start = 0;
  link_state.stage_end = 0;
}

static void end_epoch(void) {
  link_state.in_epoch = false;
  frame_reader_lose(&link_state.reader);
  streams_close_all();
  clear_output();
}

void link_violation(const char *why) {
  if (link_state.in_epoch) fprintf(stderr, "perdure-guest: the host broke the protocol: %s\n", why);
  end_epoch();
}

/* Straight to the stage where nothing is before it: most answers need no memory of their own. */
static bool stage_now(const uint8_t *header, size_t header_length, struct bytes payload) {
  if (link_state.first != NULL || link_state.is_filling) return false;
  if (link_state.stage_start == link_state.stage_end) {
    link_state.stage_start = 0;
    link_state.stage_end = 0;
  }
  if (header_length + payload.length > STAGE_BYTES - link_state.stage_end) return false;
  uint8_t *at = link_state.stage + link_state.stage_end;
  memcpy(at, header, header_length);
  if (payload.length > 0) memcpy(at + header_length, payload.at, payload.length);
  link_state.stage_end += header_length + payload.length;
  return true;
}

/* One frame with its header, or raw bytes (SYNCED), at the end of the queue. */
static void enqueue(const uint8_t *header, size_t header_length, struct bytes payload) {
  size_t length = header_length + payload.length;
  if (stage_now(header, header_length, payload)) return;
  struct out_frame *frame = malloc(sizeof *frame + length);
  if (frame == NULL) {
    /* An answer that cannot be given must not be missed silently: the host sees a dead epoch. */
    link_violation("no memory for an answer");
    return;
  }
  frame->next = NULL;
  frame->length = length;
  frame->staged = 0;
  memcpy(frame->bytes, header, header_length);
  if (payload.length > 0) memcpy(frame->bytes + header_length, payload.at, payload.length);
  if (link_state.last != NULL) {
    link_state.last->next = frame;
  } else {
    link_state.first = frame;
  }
  link_state.last = frame;
  link_state.queued += length;
}

void link_send(enum frame_type type, uint32_t stream, struct bytes payload) {
  if (!link_state.in_epoch) return;
  uint8_t header[FRAME_HEADER];
  frame_put_header(header, (uint8_t)type, stream, payload.length);
  enqueue(header, sizeof header, payload);
}

void link_send_window(uint32_t stream, uint32_t bytes) {
  uint8_t payload[4];
  wire_put_u32(payload, bytes);
  link_send(FRAME_WINDOW, stream, (struct bytes){payload, sizeof payload});
}

uint32_t link_version(void) { return link_state.version; }

bool link_is_flushed(void) {
  return link_state.first == NULL && link_state.stage_start == link_state.stage_end;
}

static void on_resync(void *context, const struct resync *resync) {
  (void)context;
  streams_close_all();
  clear_output();
  uint8_t synced[RESYNC_BYTES];
  uint32_t version = resync->version < PROTOCOL_VERSION ? resync->version : PROTOCOL_VERSION;
  synced_put(synced, resync, version);
  link_state.in_epoch = true;
  link_state.version = version;
  link_state.connected = false;
  link_state.checks = 0;
  enqueue(synced, sizeof synced, (struct bytes){NULL, 0});
}

static void on_frame(void *context, const struct frame *frame) {
  (void)context;
  stream_take_frame(frame);
}

static void on_violation(void *context, const char *why) {
  (void)context;
  link_violation(why);
}

static const struct frame_sink SINK = {on_resync, on_frame, on_violation, NULL};

static void release_held(struct timer *timer) {
  (void)timer;
  frame_reader_release(&link_state.reader, &SINK);
}

static void check_port(struct timer *timer);
static void port_ready(struct source *source, uint32_t events);

static bool use_port(int fd) {
  link_state.readable = true;
  link_state.writable = true;
  link_state.stuck = 0;
  source_open(&link_state.port, fd, port_ready);
  return source_watch(&link_state.port, EPOLLIN | EPOLLOUT | EPOLLET);
}

static void rebind(const struct request *request, struct answer_pipe *pipe) {
  (void)request;
  port_rebind();
  child_put_status(pipe, STATUS_OK, NULL);
}

static void reopen_port(struct timer *timer) {
  int fd = port_open();
  if (fd >= 0 && use_port(fd)) return;
  if (fd >= 0) source_close(&link_state.port);
  timer_arm(timer, REOPEN_AFTER_MS);
}

static void rebound(enum status status, struct bytes fields) {
  (void)status;
  (void)fields;
  timer_arm(&link_state.reopen, REOPEN_AFTER_MS);
}

/* K6. */
static void replace_port(void) {
  static const struct request nothing;
  fprintf(stderr, "perdure-guest: the port takes nothing any more, binding its driver anew\n");
  end_epoch();
  timer_disarm(&link_state.check);
  source_close(&link_state.port);
  link_state.readable = false;
  link_state.writable = false;
  struct job_plan plan = {.work = rebind, .keep_running = true, .after = rebound};
  if (!job_run(0, &nothing, &plan)) rebound(STATUS_TOO_MANY, (struct bytes){NULL, 0});
}

static void note_connected(void) {
  link_state.connected = true;
  link_state.checks = 0;
}

/* K5. */
static void check_port(struct timer *timer) {
  struct pollfd port = {.fd = link_state.port.fd, .events = POLLIN | POLLOUT, .revents = 0};
  if (poll(&port, 1, 0) < 0) port.revents = 0;
  bool hung_up = (port.revents & (POLLHUP | POLLERR)) != 0;
  if (!hung_up) { /* POLLIN says nothing: it comes with every POLLHUP */
    bool full = (port.revents & POLLOUT) == 0 && !link_is_flushed();
    link_state.stuck = full ? link_state.stuck + 1 : 0;
    if (link_state.stuck >= CHECKS_STUCK_MAX && !link_state.is_socket) {
      replace_port();
      return;
    }
    link_state.writable = true;
    link_state.readable = true;
  } else if (link_state.connected || ++link_state.checks >= CHECKS_UNCONNECTED_MAX) {
    end_epoch();
  } else {
    timer_arm(timer, CHECK_AFTER_MS);
  }
}

static void port_ready(struct source *source, uint32_t events) {
  (void)source;
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) link_state.readable = true;
  if ((events & EPOLLOUT) != 0) link_state.writable = true;
}

bool link_open(int fd, void (*on_gone)(void)) {
  int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) return false;
  struct stat facts;
  if (fstat(fd, &facts) != 0) return false;
  link_state.is_socket = S_ISSOCK(facts.st_mode);
  link_state.on_gone = on_gone;
  frame_reader_open(&link_state.reader);
  timer_open(&link_state.release, false, release_held);
  timer_open(&link_state.check, false, check_port);
  timer_open(&link_state.reopen, false, reopen_port);
  return use_port(fd);
}

static void host_seems_away(void) {
  link_state.readable = false;
  if (link_state.is_socket) {
    end_epoch();
    if (link_state.on_gone != NULL) link_state.on_gone();
  } else if (link_state.in_epoch && !link_state.check.armed) {
    timer_arm(&link_state.check, CHECK_AFTER_MS);
  }
}

static void read_some(void) {
  static uint8_t chunk[READ_CHUNK];
  size_t budget = READ_PER_TURN;
  while (link_state.readable && budget > 0 && link_state.queued <= QUEUE_MAX) {
    ssize_t got = read(link_state.port.fd, chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) {
      link_state.readable = false;
      note_connected();
    } else if (got <= 0) {
      host_seems_away();
    } else {
      budget -= (size_t)got < budget ? (size_t)got : budget;
      frame_reader_push(&link_state.reader, (struct bytes){chunk, (size_t)got}, &SINK);
    }
  }
  if (!frame_reader_holds(&link_state.reader)) {
    timer_disarm(&link_state.release);
  } else if (!link_state.release.armed) {
    timer_arm(&link_state.release, RELEASE_AFTER_MS);
  }
}

/* Fills the stage: control frames, cut where the stage ends, then whole DATA frames. */
static void fill_stage(void) {
  link_state.stage_start = 0;
  link_state.stage_end = 0;
  while (link_state.first != NULL && link_state.stage_end < STAGE_BYTES) {
    struct out_frame *frame = link_state.first;
    size_t part = frame->length - frame->staged;
    size_t room = STAGE_BYTES - link_state.stage_end;
    if (part > room) part = room;
    memcpy(link_state.stage + link_state.stage_end, frame->bytes + frame->staged, part);
    frame->staged += part;
    link_state.stage_end += part;
    if (frame->staged < frame->length) return;
    link_state.first = frame->next;
    if (link_state.first == NULL) link_state.last = NULL;
    link_state.queued -= frame->length;
    free(frame);
  }
  while (link_state.in_epoch && link_state.first == NULL) {
    uint8_t *at = link_state.stage + link_state.stage_end;
    size_t room = STAGE_BYTES - link_state.stage_end;
    if (room < FRAME_HEADER + 1024 && link_state.stage_end > 0) return;
    uint32_t stream = 0;
    link_state.is_filling = true;
    size_t length = streams_fill(&stream, at + FRAME_HEADER, room - FRAME_HEADER);
    link_state.is_filling = false;
    if (length == 0) return;
    frame_put_header(at, FRAME_DATA, stream, length);
    link_state.stage_end += FRAME_HEADER + length;
  }
}

/* True where only the budget of this turn was the end. */
static bool write_some(void) {
  size_t budget = WRITE_PER_TURN;
  while (link_state.writable && budget > 0) {
    if (link_state.stage_start == link_state.stage_end) fill_stage();
    size_t length = link_state.stage_end - link_state.stage_start;
    /* An END is made while looking for DATA: only nothing left in the queue either is the end. */
    if (length == 0 && link_state.first == NULL) break;
    if (length == 0) continue;
    ssize_t put = write(link_state.port.fd, link_state.stage + link_state.stage_start, length);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno != EAGAIN) {
      link_state.writable = false;
      if (link_state.is_socket) host_seems_away();
    } else if (put <= 0) {
      link_state.writable = false;
    } else {
      note_connected();
      link_state.stuck = 0;
      link_state.stage_start += (size_t)put;
      budget -= (size_t)put < budget ? (size_t)put : budget;
    }
  }
  if (!link_state.writable && !link_is_flushed() && !link_state.check.armed) {
    timer_arm(&link_state.check, CHECK_AFTER_MS);
  }
  return budget == 0;
}

bool link_pump(void) {
  read_some();
  bool writes = write_some() && link_state.writable;
  return writes || (link_state.readable && link_state.queued <= QUEUE_MAX);
}
