/* See stream.h. */
#include "stream.h"

#include <string.h>

#include "link.h"
#include "operation.h"

static struct stream streams[STREAMS_MAX];
static unsigned open_count;
static unsigned next_turn; /* whose turn it is to send DATA */

static uint8_t answer_buffer[PAYLOAD_MAX];
static struct field_writer answer;

struct field_writer *answer_begin(enum status status) {
  wire_put_u16(answer_buffer, (uint16_t)status);
  field_writer_open(&answer, answer_buffer + 2, sizeof answer_buffer - 2);
  return &answer;
}

void answer_send(enum frame_type type, uint32_t stream) {
  if (answer.overflowed) {
    answer_begin(STATUS_INTERNAL);
    field_put_string(&answer, TAG_MESSAGE, "The answer does not fit into a frame");
  }
  link_send(type, stream, (struct bytes){answer_buffer, 2 + answer.length});
}

void answer_send_payload(enum frame_type type, uint32_t stream, struct bytes payload) {
  link_send(type, stream, payload);
}

void answer_status(uint32_t stream, enum status status, const char *message) {
  answer_begin(status);
  if (message != NULL) field_put_string(&answer, TAG_MESSAGE, message);
  answer_send(FRAME_RESPONSE, stream);
}

void stream_answer(struct stream *stream, enum status status, const char *message) {
  uint32_t id = stream->id;
  stream_close(stream);
  answer_status(id, status, message);
}

static struct stream *find(uint32_t id) {
  for (unsigned i = 0; i < STREAMS_MAX; i++) {
    if (streams[i].id == id) return &streams[i];
  }
  return NULL;
}

static void deadline_passed(struct timer *timer) {
  struct stream *stream = CONTAINER_OF(timer, struct stream, deadline);
  stream->handler->expire(stream);
}

struct stream *stream_open(uint32_t id, enum operation op, const struct stream_handler *handler,
                           void *owner) {
  struct stream *stream = open_count < STREAMS_MAX ? find(0) : NULL;
  if (stream == NULL) {
    answer_status(id, STATUS_TOO_MANY, "256 streams are open");
    return NULL;
  }
  memset(stream, 0, sizeof *stream);
  stream->id = id;
  stream->op = op;
  stream->handler = handler;
  stream->owner = owner;
  timer_open(&stream->deadline, false, deadline_passed);
  open_count++;
  return stream;
}

void stream_close(struct stream *stream) {
  if (stream->id == 0) return;
  timer_disarm(&stream->deadline);
  stream->id = 0;
  open_count--;
}

void stream_set_deadline(struct stream *stream, uint64_t after_ms) {
  timer_arm(&stream->deadline, after_ms);
}

void stream_grant(struct stream *stream, size_t bytes) {
  if (bytes == 0) return;
  stream->receive_credit += bytes;
  link_send_window(stream->id, (uint32_t)bytes);
}

struct stream *stream_next(struct stream *previous) {
  unsigned index = previous == NULL ? 0 : (unsigned)(previous - streams) + 1;
  for (; index < STREAMS_MAX; index++) {
    if (streams[index].id != 0) return &streams[index];
  }
  return NULL;
}

static void end_from_outside(struct stream *stream) {
  void (*close)(struct stream *) = stream->handler->close;
  if (close != NULL) close(stream);
  stream_close(stream);
}

void streams_close_all(void) {
  for (struct stream *stream = stream_next(NULL); stream != NULL; stream = stream_next(stream)) {
    end_from_outside(stream);
  }
}

size_t streams_fill(uint32_t *id, uint8_t *payload, size_t room) {
  if (open_count == 0) return 0;
  for (unsigned i = 0; i < STREAMS_MAX; i++) {
    unsigned index = (next_turn + i) % STREAMS_MAX;
    struct stream *stream = &streams[index];
    if (stream->id == 0 || stream->handler->fill == NULL) continue;
    *id = stream->id;
    size_t allowed = stream->send_credit < room ? (size_t)stream->send_credit : room;
    size_t length = stream->handler->fill(stream, payload, allowed);
    if (length == 0) continue;
    stream->send_credit -= length;
    next_turn = (index + 1) % STREAMS_MAX;
    return length;
  }
  return 0;
}

static void take_data(struct stream *stream, struct bytes payload) {
  if (stream == NULL) return;
  if (stream->handler->data == NULL || stream->host_ended) {
    link_violation("DATA where none is expected");
  } else if (payload.length > stream->receive_credit) {
    link_violation("DATA beyond the credit");
  } else {
    stream->receive_credit -= payload.length;
    stream->handler->data(stream, payload);
  }
}

static void take_window(struct stream *stream, struct bytes payload) {
  if (payload.length != 4) {
    link_violation("WINDOW of a wrong size");
  } else if (stream != NULL) {
    stream->send_credit += wire_get_u32(payload.at);
    if (stream->send_credit > CREDIT_MAX) link_violation("WINDOW of more than 1 MiB ahead");
  }
}

void stream_take_frame(const struct frame *frame) {
  struct stream *stream = frame->stream != 0 ? find(frame->stream) : NULL;
  switch (frame->type) {
    case FRAME_REQUEST:
      if (frame->stream == 0 || stream != NULL) {
        link_violation("REQUEST on a stream that cannot be opened");
      } else {
        operation_run(frame->stream, frame->payload);
      }
      return;
    case FRAME_DATA:
      take_data(stream, frame->payload);
      return;
    case FRAME_END:
      if (frame->payload.length < 2) {
        link_violation("END without a status");
      } else if (stream != NULL && !stream->host_ended) {
        stream->host_ended = true;
        if (stream->handler->end != NULL) stream->handler->end(stream);
      }
      return;
    case FRAME_WINDOW:
      take_window(stream, frame->payload);
      return;
    case FRAME_CANCEL:
      if (stream != NULL) end_from_outside(stream);
      return;
    default:
      link_violation("a frame only the guest sends");
  }
}
