/* See frame.h. */
#include "frame.h"

#include <string.h>

static const uint8_t RESYNC_MAGIC[MAGIC_BYTES + 1] = "\x89PERDURE-RESYNC\n";
static const uint8_t SYNCED_MAGIC[MAGIC_BYTES + 1] = "\x89PERDURE-SYNCED\n";

void frame_reader_open(struct frame_reader *reader) {
  reader->matched = 0;
  reader->held = 0;
  reader->in_resync = false;
  reader->body_length = 0;
  reader->lost = true;
  reader->have = 0;
}

bool frame_reader_holds(const struct frame_reader *reader) { return reader->held > 0; }

void frame_reader_lose(struct frame_reader *reader) {
  reader->lost = true;
  reader->have = 0;
}

/* The header is whole: what is wrong with it, or NULL. */
static const char *header_problem(const uint8_t *header) {
  uint32_t length = wire_get_u32(header);
  if (length < FRAME_HEADER - 4 || length > FRAME_HEADER - 4 + PAYLOAD_MAX) return "frame length";
  if (header[5] != 0 || wire_get_u16(header + 6) != 0) return "frame flags";
  switch (header[4]) {
    case FRAME_REQUEST:
    case FRAME_DATA:
    case FRAME_END:
    case FRAME_WINDOW:
    case FRAME_CANCEL:
      return NULL;
    default:
      return "frame type";
  }
}

static void parse(struct frame_reader *reader, const uint8_t *at, size_t length,
                  const struct frame_sink *sink) {
  while (length > 0 && !reader->lost) {
    size_t need = FRAME_HEADER;
    if (reader->have >= FRAME_HEADER) need = 4 + wire_get_u32(reader->buffer);
    size_t take = need - reader->have;
    if (take > length) take = length;
    memcpy(reader->buffer + reader->have, at, take);
    reader->have += take;
    at += take;
    length -= take;
    if (reader->have < need) return;
    if (need == FRAME_HEADER) {
      const char *problem = header_problem(reader->buffer);
      if (problem != NULL) {
        frame_reader_lose(reader);
        sink->violation(sink->context, problem);
        return;
      }
      if (wire_get_u32(reader->buffer) > FRAME_HEADER - 4) continue;
    }
    struct frame frame = {
        .type = reader->buffer[4],
        .stream = wire_get_u32(reader->buffer + 8),
        .payload = {reader->buffer + FRAME_HEADER, reader->have - FRAME_HEADER},
    };
    reader->have = 0;
    sink->frame(sink->context, &frame);
  }
}

void frame_reader_release(struct frame_reader *reader, const struct frame_sink *sink) {
  unsigned held = reader->held;
  reader->held = 0;
  if (held > 0) parse(reader, RESYNC_MAGIC + reader->matched - held, held, sink);
}

static void finish_resync(struct frame_reader *reader, const struct frame_sink *sink) {
  struct resync resync;
  memcpy(resync.nonce, reader->body, sizeof resync.nonce);
  resync.version = wire_get_u32(reader->body + 16);
  resync.epoch = wire_get_u32(reader->body + 20);
  resync.generation = wire_get_u64(reader->body + 24);
  reader->in_resync = false;
  reader->held = 0;
  reader->lost = false;
  reader->have = 0;
  sink->resync(sink->context, &resync);
}

void frame_reader_push(struct frame_reader *reader, struct bytes bytes,
                       const struct frame_sink *sink) {
  const uint8_t *at = bytes.at;
  const uint8_t *end = at + bytes.length;
  while (at < end) {
    if (reader->matched == 0 && !reader->in_resync) {
      /* Nothing under suspicion: everything up to a first magic byte goes on in one piece. */
      const uint8_t *suspect = memchr(at, RESYNC_MAGIC[0], (size_t)(end - at));
      const uint8_t *stop = suspect != NULL ? suspect : end;
      if (stop > at) parse(reader, at, (size_t)(stop - at), sink);
      at = stop;
      if (suspect == NULL) return;
    }
    uint8_t byte = *at++;
    if (reader->in_resync) reader->body[reader->body_length++] = byte;

    if (byte == RESYNC_MAGIC[reader->matched]) {
      reader->matched++;
      if (!reader->in_resync) reader->held++;
    } else {
      /* The first byte of the magic occurs in it once, so a failed match restarts at this byte. */
      frame_reader_release(reader, sink);
      bool first = byte == RESYNC_MAGIC[0];
      reader->matched = first ? 1 : 0;
      if (!reader->in_resync) {
        if (first) {
          reader->held = 1;
        } else {
          parse(reader, &byte, 1, sink);
        }
      }
    }

    if (reader->matched == MAGIC_BYTES) {
      reader->matched = 0;
      reader->held = 0;
      reader->in_resync = true;
      reader->body_length = 0;
      frame_reader_lose(reader);
    } else if (reader->in_resync && reader->body_length == sizeof reader->body) {
      finish_resync(reader, sink);
    }
  }
}

void frame_put_header(uint8_t *at, uint8_t type, uint32_t stream, size_t payload_length) {
  wire_put_u32(at, (uint32_t)(FRAME_HEADER - 4 + payload_length));
  at[4] = type;
  at[5] = 0;
  wire_put_u16(at + 6, 0);
  wire_put_u32(at + 8, stream);
}

void synced_put(uint8_t *at, const struct resync *resync, uint32_t version) {
  memcpy(at, SYNCED_MAGIC, MAGIC_BYTES);
  memcpy(at + 16, resync->nonce, sizeof resync->nonce);
  wire_put_u32(at + 32, version);
  wire_put_u32(at + 36, resync->epoch);
  wire_put_u64(at + 40, 0);
}
