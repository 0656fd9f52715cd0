/*
 * Streams: one per request that is not answered at once, each with credit in both directions. Takes
 * the frames of the epoch apart and makes DATA, fairly, when the port has room.
 *
 * Invariants:
 *  S1 A stream gets exactly one RESPONSE, unless the host cancels it or the epoch ends first.
 *  S2 `close` of the handler is called exactly once, and only when the stream ends from outside
 *     (CANCEL, end of the epoch); an owner that ends its stream itself is not called.
 *  S3 No more DATA is sent than granted, none is taken that was not granted.
 *  S4 Frames for a stream that is not open are ignored: the other side may not know yet.
 */
#ifndef PERDURE_STREAM_H
#define PERDURE_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "field.h"
#include "frame.h"
#include "loop.h"
#include "protocol.h"

struct stream;

struct stream_handler {
  /* DATA from the host, within the credit granted. NULL: none is expected. */
  void (*data)(struct stream *stream, struct bytes bytes);
  /* The host's END. */
  void (*end)(struct stream *stream);
  /* The next DATA payload, at most `room` bytes (0 without credit); 0 where there is none. May end
   * the stream. */
  size_t (*fill)(struct stream *stream, uint8_t *payload, size_t room);
  /* The deadline passed. */
  void (*expire)(struct stream *stream);
  void (*close)(struct stream *stream);
};

struct stream {
  uint32_t id; /* 0: not open */
  enum operation op;
  const struct stream_handler *handler;
  uint64_t send_credit;
  uint64_t receive_credit;
  bool host_ended;
  struct timer deadline;
  void *owner;     /* the process, job or file the stream belongs to */
  uint64_t offset; /* of a reader of output: the next byte it has not been sent */
};

/* NULL where 256 are open; then the request was answered with too_many already. */
struct stream *stream_open(uint32_t id, enum operation op, const struct stream_handler *handler,
                           void *owner);
/* Forgets the stream without a word to the host. */
void stream_close(struct stream *stream);
void stream_set_deadline(struct stream *stream, uint64_t after_ms);
void stream_grant(struct stream *stream, size_t bytes);
/* Walks the open streams: NULL first, NULL at the end. Closing the current one is allowed. */
struct stream *stream_next(struct stream *previous);

void stream_take_frame(const struct frame *frame);
size_t streams_fill(uint32_t *id, uint8_t *payload, size_t room);
void streams_close_all(void);

/*
 * Answers are put together in one buffer: begin, put fields, send. `answer_status` is the whole
 * answer where there is nothing but a status and perhaps a message.
 */
struct field_writer *answer_begin(enum status status);
void answer_send(enum frame_type type, uint32_t stream);
void answer_status(uint32_t stream, enum status status, const char *message);
/* A payload that is whole already: status, fields. */
void answer_send_payload(enum frame_type type, uint32_t stream, struct bytes payload);
/* The RESPONSE of an open stream, which ends with it. */
void stream_answer(struct stream *stream, enum status status, const char *message);

#endif
