/*
 * Deterministic fuzzing of what meets the host's bytes first: frame reader and request decoder.
 *
 *   fuzz-frame SEED COUNT
 *
 * Each input is a stream built from valid frames, RESYNCs, requests and mutations, pushed in random
 * pieces. Checked besides memory safety: a model of the stream says exactly which RESYNC must have
 * been seen last, and that a reader that was pushed the same bytes one by one heard the same.
 */
#include <stdlib.h>
#include <string.h>

#include "../src/frame.h"
#include "../src/request.h"
#include "check.h"

#define STREAM_MAX 4096u

struct heard {
  uint64_t digest;
  unsigned resyncs;
  uint32_t last_epoch;
};

static struct frame_reader readers[2];
static unsigned long long random_state;

static unsigned pick(unsigned limit) { return (unsigned)(random_next(&random_state) >> 33) % limit; }

static void mix(struct heard *heard, const void *bytes, size_t length) {
  const uint8_t *at = bytes;
  for (size_t i = 0; i < length; i++) heard->digest = (heard->digest ^ at[i]) * 1099511628211u;
}

static void on_resync(void *context, const struct resync *resync) {
  struct heard *heard = context;
  heard->resyncs++;
  heard->last_epoch = resync->epoch;
  mix(heard, resync->nonce, sizeof resync->nonce);
}

static void walk_request(struct heard *heard, const struct request *request) {
  for (int tag = 0; tag < TAG_LIMIT; tag++) {
    if (!request_has(request, (enum tag)tag)) continue;
    struct bytes value = request->slice[tag];
    mix(heard, value.at, value.length); /* reads every byte: the sanitizer looks */
  }
  struct field_reader list = request_list(request);
  struct bytes value;
  while (request_each(&list, TAG_ARGV, &value)) mix(heard, value.at, value.length);
}

static void on_frame(void *context, const struct frame *frame) {
  static struct request request;
  static struct request nested;
  struct heard *heard = context;
  const char *why = "";
  mix(heard, &frame->type, 1);
  mix(heard, &frame->stream, sizeof frame->stream);
  mix(heard, frame->payload.at, frame->payload.length);
  if (frame->type != FRAME_REQUEST) return;
  if (request_decode(frame->payload, &request, &why) != STATUS_OK) return;
  walk_request(heard, &request);
  struct field_reader list = request_list(&request);
  struct bytes value;
  while (request_each(&list, TAG_FILE, &value)) {
    if (request_decode_fields(value, &nested, &why) == STATUS_OK) walk_request(heard, &nested);
  }
}

static void on_violation(void *context, const char *why) { mix(context, why, strlen(why)); }

static size_t put_random(uint8_t *at, size_t length) {
  for (size_t i = 0; i < length; i++) at[i] = (uint8_t)pick(256);
  return length;
}

static size_t put_fields(uint8_t *at, size_t room) {
  struct field_writer writer;
  field_writer_open(&writer, at, room);
  for (unsigned i = pick(6); i > 0; i--) {
    uint16_t tag = (uint16_t)pick(pick(4) == 0 ? 65536 : TAG_LIMIT);
    uint8_t value[32];
    switch (pick(4)) {
      case 0:
        field_put_number(&writer, tag, pick(3));
        break;
      case 1: {
        size_t opened = field_open(&writer, TAG_FILE);
        field_put_bytes(&writer, TAG_PATH, "/x", 2);
        field_put_number(&writer, TAG_MODE, 0644);
        field_close(&writer, opened);
        break;
      }
      default:
        field_put_bytes(&writer, tag, value, put_random(value, pick(sizeof value)));
    }
  }
  return writer.length;
}

static size_t put_resync(uint8_t *at, uint32_t epoch) {
  memcpy(at, "\x89PERDURE-RESYNC\n", 16);
  put_random(at + 16, 16);
  wire_put_u32(at + 32, 1);
  wire_put_u32(at + 36, epoch);
  wire_put_u64(at + 40, 0);
  return RESYNC_BYTES;
}

static size_t put_something(uint8_t *at) {
  size_t length = 0;
  switch (pick(8)) {
    case 0:
      return put_random(at, pick(64));
    case 1:
      return put_resync(at, 1);
    case 2: /* the beginning of a RESYNC, and then something else */
      put_resync(at, 1);
      return pick(RESYNC_BYTES);
    case 3: /* a frame that promises more than comes */
      frame_put_header(at, FRAME_DATA, pick(5), pick(70000));
      return FRAME_HEADER + put_random(at + FRAME_HEADER, pick(40));
    default: {
      uint8_t *payload = at + FRAME_HEADER;
      uint8_t type = (uint8_t)(1 + pick(6));
      if (type == FRAME_REQUEST) {
        wire_put_u16(payload, (uint16_t)pick(36));
        length = 2 + put_fields(payload + 2, 250);
      } else {
        length = put_random(payload, pick(48));
      }
      frame_put_header(at, type, pick(5), length);
      if (pick(4) == 0) at[pick((unsigned)(FRAME_HEADER + length))] ^= (uint8_t)(1u << pick(8));
      return FRAME_HEADER + length;
    }
  }
}

/* One input: random things, then a RESYNC with a known epoch, then one known frame. */
static void run_one(void) {
  static uint8_t stream[STREAM_MAX];
  size_t length = 0;
  for (unsigned parts = 1 + pick(8); parts > 0; parts--) length += put_something(stream + length);
  length += put_resync(stream + length, 0xfeedbeef);
  frame_put_header(stream + length, FRAME_CANCEL, 77, 0);
  length += FRAME_HEADER;

  struct heard heard[2];
  memset(heard, 0, sizeof heard);
  for (int which = 0; which < 2; which++) {
    struct frame_sink sink = {on_resync, on_frame, on_violation, &heard[which]};
    frame_reader_open(&readers[which]);
    for (size_t at = 0; at < length;) {
      size_t part = which == 0 ? 1 + pick(97) : 1;
      if (part > length - at) part = length - at;
      frame_reader_push(&readers[which], (struct bytes){stream + at, part}, &sink);
      at += part;
    }
  }
  CHECK(heard[0].digest == heard[1].digest && heard[0].resyncs == heard[1].resyncs);
  CHECK(heard[0].last_epoch == 0xfeedbeef);
  CHECK(!readers[0].lost && readers[0].have == 0 && !frame_reader_holds(&readers[0]));
}

int main(int argc, char **argv) {
  if (argc != 3) {
    fprintf(stderr, "fuzz-frame SEED COUNT\n");
    return 2;
  }
  unsigned long long seed = strtoull(argv[1], NULL, 10);
  unsigned long count = strtoul(argv[2], NULL, 10);
  for (unsigned long i = 0; i < count && checks_failed == 0; i++) {
    random_state = (seed + i) * 2654435769u + 1;
    run_one();
    if (checks_failed > 0) fprintf(stderr, "again with: fuzz-frame %llu 1\n", seed + i);
  }
  return checks_report("fuzz-frame");
}
