/* Frames and RESYNCs out of a stream that is cut and broken in every way. */
#include <string.h>

#include "../../src/frame.h"
#include "../check.h"
#include "unit.h"

struct heard {
  unsigned resyncs;
  unsigned frames;
  unsigned violations;
  struct resync resync;
  uint8_t last_type;
  uint32_t last_stream;
  uint8_t last[256];
  size_t last_length;
};

static void heard_resync(void *context, const struct resync *resync) {
  struct heard *heard = context;
  heard->resyncs++;
  heard->resync = *resync;
}

static void heard_frame(void *context, const struct frame *frame) {
  struct heard *heard = context;
  heard->frames++;
  heard->last_type = frame->type;
  heard->last_stream = frame->stream;
  heard->last_length = frame->payload.length;
  if (frame->payload.length <= sizeof heard->last) {
    memcpy(heard->last, frame->payload.at, frame->payload.length);
  }
}

static void heard_violation(void *context, const char *why) {
  (void)why;
  ((struct heard *)context)->violations++;
}

static struct frame_sink sink_of(struct heard *heard) {
  memset(heard, 0, sizeof *heard);
  return (struct frame_sink){heard_resync, heard_frame, heard_violation, heard};
}

static const char MAGIC[] = "\x89PERDURE-RESYNC\n";

static size_t put_resync(uint8_t *at, uint8_t nonce, uint32_t epoch) {
  memcpy(at, MAGIC, 16);
  memset(at + 16, nonce, 16);
  wire_put_u32(at + 32, 1);
  wire_put_u32(at + 36, epoch);
  wire_put_u64(at + 40, 99);
  return RESYNC_BYTES;
}

static size_t put_frame(uint8_t *at, uint8_t type, uint32_t stream, const char *text) {
  frame_put_header(at, type, stream, strlen(text));
  memcpy(at + FRAME_HEADER, text, strlen(text));
  return FRAME_HEADER + strlen(text);
}

static struct frame_reader reader;

static void push(const uint8_t *at, size_t length, size_t step, const struct frame_sink *sink) {
  for (size_t done = 0; done < length; done += step) {
    size_t part = length - done < step ? length - done : step;
    frame_reader_push(&reader, (struct bytes){at + done, part}, sink);
  }
}

/* Every way to cut the stream gives the same frames. */
static void test_frames_in_any_pieces(void) {
  uint8_t bytes[512];
  size_t length = 0;
  memcpy(bytes, "left-over", 9);
  length += 9;
  length += put_resync(bytes + length, 0x42, 7);
  length += put_frame(bytes + length, FRAME_REQUEST, 1, "one");
  length += put_frame(bytes + length, FRAME_CANCEL, 2, "");
  length += put_frame(bytes + length, FRAME_DATA, 3, "\x89PERDURE-\x89PERDURE-RESYNX");
  for (size_t step = 1; step <= length; step++) {
    struct heard heard;
    struct frame_sink sink = sink_of(&heard);
    frame_reader_open(&reader);
    push(bytes, length, step, &sink);
    CHECK(heard.resyncs == 1 && heard.frames == 3 && heard.violations == 0);
    CHECK(heard.resync.epoch == 7 && heard.resync.version == 1 && heard.resync.generation == 99);
    CHECK(heard.resync.nonce[0] == 0x42 && heard.resync.nonce[15] == 0x42);
    CHECK(heard.last_type == FRAME_DATA && heard.last_stream == 3 && heard.last_length == 24);
    CHECK(memcmp(heard.last, "\x89PERDURE-\x89PERDURE-RESYNX", 24) == 0);
  }
}

/* F1: wherever a frame is cut off, the next RESYNC is found, and F2: none of it becomes a frame. */
static void test_resync_anywhere(void) {
  uint8_t frame[64];
  size_t frame_length = put_frame(frame, FRAME_REQUEST, 5, "a payload of some length");
  for (size_t cut = 0; cut <= frame_length; cut++) {
    for (size_t step = 1; step < 60; step += 7) {
      struct heard heard;
      struct frame_sink sink = sink_of(&heard);
      uint8_t bytes[256];
      size_t length = put_resync(bytes, 1, 1);
      memcpy(bytes + length, frame, cut);
      length += cut;
      length += put_resync(bytes + length, 2, 2);
      frame_reader_open(&reader);
      push(bytes, length, step, &sink);
      CHECK(heard.resyncs == 2 && heard.resync.epoch == 2 && heard.violations == 0);
      CHECK(heard.frames == (cut == frame_length ? 1u : 0u));
    }
  }
}

/* A host that dies while it sends a RESYNC, and one that comes after it. */
static void test_resync_inside_resync(void) {
  for (size_t cut = 0; cut < RESYNC_BYTES; cut++) {
    struct heard heard;
    struct frame_sink sink = sink_of(&heard);
    uint8_t bytes[256];
    put_resync(bytes, 1, 1);
    size_t length = cut + put_resync(bytes + cut, 2, 2);
    length += put_frame(bytes + length, FRAME_CANCEL, 9, "");
    frame_reader_open(&reader);
    push(bytes, length, 5, &sink);
    CHECK(heard.resyncs >= 1 && heard.resync.epoch == 2);
    CHECK(heard.last_type == FRAME_CANCEL && heard.last_stream == 9);
  }
}

/* F2: a frame may end in what could begin a RESYNC; it comes out when nothing follows. */
static void test_release_of_held_bytes(void) {
  for (size_t prefix = 1; prefix < 16; prefix++) {
    struct heard heard;
    struct frame_sink sink = sink_of(&heard);
    char text[32] = "x";
    memcpy(text + 1, MAGIC, prefix);
    text[1 + prefix] = '\0';
    uint8_t bytes[256];
    size_t length = put_resync(bytes, 1, 1);
    length += put_frame(bytes + length, FRAME_DATA, 4, text);
    frame_reader_open(&reader);
    push(bytes, length, 11, &sink);
    CHECK(heard.frames == 0 && frame_reader_holds(&reader));
    frame_reader_release(&reader, &sink);
    CHECK(heard.frames == 1 && heard.last_length == 1 + prefix && !frame_reader_holds(&reader));
    CHECK(memcmp(heard.last, text, 1 + prefix) == 0);
    /* The rest of the magic is a RESYNC even so. */
    uint8_t rest[RESYNC_BYTES];
    put_resync(rest, 3, 3);
    push(rest + prefix, RESYNC_BYTES - prefix, 3, &sink);
    CHECK(heard.resyncs == 2 && heard.resync.epoch == 3);
  }
}

static void test_violations(void) {
  static const struct {
    uint32_t length;
    uint8_t type, flags, reserved;
  } bad[] = {{7, 1, 0, 0},  {8 + PAYLOAD_MAX + 1, 3, 0, 0}, {0xffffffff, 3, 0, 0}, {8, 0, 0, 0},
             {8, 2, 0, 0},  {8, 7, 0, 0},                   {8, 8, 0, 0},          {8, 6, 1, 0},
             {8, 6, 0, 1}};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    struct heard heard;
    struct frame_sink sink = sink_of(&heard);
    uint8_t bytes[256];
    size_t length = put_resync(bytes, 1, 1);
    frame_put_header(bytes + length, bad[i].type, 1, 0);
    wire_put_u32(bytes + length, bad[i].length);
    bytes[length + 5] = bad[i].flags;
    bytes[length + 6] = bad[i].reserved;
    length += FRAME_HEADER;
    length += put_frame(bytes + length, FRAME_CANCEL, 1, "");
    frame_reader_open(&reader);
    push(bytes, length, 256, &sink);
    CHECK(heard.violations == 1 && heard.frames == 0); /* F3: lost until a RESYNC */
    length = put_resync(bytes, 2, 2);
    length += put_frame(bytes + length, FRAME_CANCEL, 1, "");
    push(bytes, length, 256, &sink);
    CHECK(heard.resyncs == 2 && heard.frames == 1);
  }
}

static void test_largest_frame(void) {
  struct heard heard;
  struct frame_sink sink = sink_of(&heard);
  static uint8_t bytes[RESYNC_BYTES + FRAME_HEADER + PAYLOAD_MAX];
  size_t length = put_resync(bytes, 1, 1);
  frame_put_header(bytes + length, FRAME_DATA, 1, PAYLOAD_MAX);
  memset(bytes + length + FRAME_HEADER, 0x89, PAYLOAD_MAX);
  frame_reader_open(&reader);
  push(bytes, sizeof bytes, sizeof bytes, &sink);
  frame_reader_release(&reader, &sink);
  CHECK(heard.frames == 1 && heard.last_length == PAYLOAD_MAX);
}

static void test_synced(void) {
  struct resync resync = {.version = 9, .epoch = 0x01020304, .generation = 5};
  memset(resync.nonce, 0xab, sizeof resync.nonce);
  uint8_t bytes[RESYNC_BYTES];
  synced_put(bytes, &resync, 1);
  CHECK(memcmp(bytes, "\x89PERDURE-SYNCED\n", 16) == 0);
  CHECK(bytes[16] == 0xab && bytes[31] == 0xab);
  CHECK(wire_get_u32(bytes + 32) == 1 && wire_get_u32(bytes + 36) == 0x01020304);
  CHECK(wire_get_u64(bytes + 40) == 0);
}

void unit_frames(void) {
  test_frames_in_any_pieces();
  test_resync_anywhere();
  test_resync_inside_resync();
  test_release_of_held_bytes();
  test_violations();
  test_largest_frame();
  test_synced();
}
