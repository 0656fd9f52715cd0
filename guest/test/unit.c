/* Unit tests of everything pure: fields, frames, requests, queues, logs, paths, users, timers. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../src/byte_queue.h"
#include "../src/field.h"
#include "../src/frame.h"
#include "../src/output_log.h"
#include "../src/path.h"
#include "../src/request.h"
#include "../src/timer_list.h"
#include "../src/user.h"
#include "check.h"

#define TEXT(literal) ((struct bytes){(const uint8_t *)(literal), sizeof(literal) - 1})

static void test_fields(void) {
  uint8_t buffer[128];
  struct field_writer writer;
  field_writer_open(&writer, buffer, sizeof buffer);
  field_put_string(&writer, TAG_MESSAGE, "hello");
  field_put_number(&writer, TAG_PID, UINT64_C(0x1122334455667788));
  size_t nested = field_open(&writer, TAG_STAT);
  field_put_string(&writer, TAG_NAME, "a");
  field_close(&writer, nested);
  CHECK(!writer.overflowed);
  /* The wire form itself, byte by byte: both ends are written to the same page. */
  static const uint8_t expected[] = {1, 0, 5, 0, 0, 0, 'h', 'e', 'l', 'l', 'o', 18, 0, 8, 0, 0, 0,
                                     0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 47, 0, 7, 0, 0,
                                     0, 49, 0, 1, 0, 0, 0, 'a'};
  CHECK(writer.length == sizeof expected);
  CHECK(memcmp(buffer, expected, sizeof expected) == 0);

  struct field_reader reader;
  struct field field;
  uint64_t number = 0;
  field_reader_open(&reader, (struct bytes){buffer, writer.length});
  CHECK(field_next(&reader, &field) && field.tag == TAG_MESSAGE);
  CHECK(bytes_equal(field.value, "hello"));
  CHECK(!field_number(&field, &number));
  CHECK(field_next(&reader, &field) && field_number(&field, &number));
  CHECK(number == UINT64_C(0x1122334455667788));
  CHECK(field_next(&reader, &field) && field.tag == TAG_STAT && field.value.length == 7);
  CHECK(!field_next(&reader, &field) && !reader.malformed);

  for (size_t cut = 1; cut < writer.length; cut++) {
    field_reader_open(&reader, (struct bytes){buffer, cut});
    while (field_next(&reader, &field)) {
    }
    bool at_boundary = cut == 11 || cut == 25;
    CHECK(reader.malformed == !at_boundary);
  }
}

static void test_field_overflow(void) {
  uint8_t buffer[20];
  struct field_writer writer;
  field_writer_open(&writer, buffer, sizeof buffer);
  field_put_number(&writer, TAG_PID, 1);
  size_t mark = writer.length;
  field_put_number(&writer, TAG_PID, 2);
  CHECK(writer.overflowed && writer.length == mark);
  field_put_bytes(&writer, TAG_PID, NULL, 0); /* fits, but an overflow stays one */
  CHECK(writer.overflowed);
  field_roll_back(&writer, mark);
  CHECK(!writer.overflowed);
  field_put_bytes(&writer, TAG_PID, NULL, 0);
  CHECK(!writer.overflowed && writer.length == sizeof buffer);
}

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

static enum status decode(struct field_writer *writer, struct request *request) {
  const char *why = NULL;
  enum status status = request_decode((struct bytes){writer->at, writer->length}, request, &why);
  CHECK((status == STATUS_OK) == (why == NULL));
  return status;
}

static void test_requests(void) {
  static struct request request;
  uint8_t buffer[256] = {OP_EXEC, 0};
  struct field_writer writer;
  const char *why = NULL;
  CHECK(request_decode((struct bytes){buffer, 1}, &request, &why) == STATUS_BAD_REQUEST);

  field_writer_open(&writer, buffer, sizeof buffer);
  writer.length = 2;
  field_put_string(&writer, TAG_ARGV, "first");
  field_put_string(&writer, TAG_ARGV, "second");
  field_put_number(&writer, TAG_STDIN, 1);
  field_put_number(&writer, 60000, 5); /* unknown: ignored */
  field_put_bytes(&writer, 60, "xx", 2);
  CHECK(decode(&writer, &request) == STATUS_OK && request.op == OP_EXEC);
  CHECK(request_number(&request, TAG_STDIN, 0) == 1);
  CHECK(request_number(&request, TAG_TIMEOUT_MS, 17) == 17 && !request_has(&request, TAG_CWD));
  struct field_reader list = request_list(&request);
  struct bytes value;
  CHECK(request_each(&list, TAG_ARGV, &value) && bytes_equal(value, "first"));
  CHECK(request_each(&list, TAG_ARGV, &value) && bytes_equal(value, "second"));
  CHECK(!request_each(&list, TAG_ARGV, &value));

  size_t mark = writer.length;
  field_put_bytes(&writer, TAG_PID, "four", 4);
  CHECK(decode(&writer, &request) == STATUS_BAD_REQUEST);
  field_roll_back(&writer, mark);
  field_put_number(&writer, TAG_TREE, 2);
  CHECK(decode(&writer, &request) == STATUS_BAD_REQUEST);
  field_roll_back(&writer, mark);
  field_put_bytes(&writer, TAG_PATH, "a\0b", 3);
  CHECK(decode(&writer, &request) == STATUS_BAD_REQUEST);
  field_roll_back(&writer, mark);
  field_put_bytes(&writer, TAG_BYTES, "a\0b", 3);
  CHECK(decode(&writer, &request) == STATUS_OK);
  writer.length--;
  CHECK(decode(&writer, &request) == STATUS_BAD_REQUEST);
}

static void test_byte_queue(void) {
  struct byte_queue queue;
  CHECK(byte_queue_open(&queue, 10));
  CHECK(byte_queue_put(&queue, TEXT("abcdefgh")));
  CHECK(!byte_queue_put(&queue, TEXT("123")));
  byte_queue_drop(&queue, 6);
  CHECK(byte_queue_put(&queue, TEXT("12345678")));
  CHECK(queue.length == 10 && !byte_queue_put(&queue, TEXT("x")));
  char all[16] = "";
  size_t taken = 0;
  while (queue.length > 0) {
    struct bytes front = byte_queue_front(&queue);
    memcpy(all + taken, front.at, front.length);
    taken += front.length;
    byte_queue_drop(&queue, front.length);
  }
  CHECK(taken == 10 && memcmp(all, "gh12345678", 10) == 0);
  byte_queue_close(&queue);
  CHECK(!byte_queue_put(&queue, TEXT("x")));
}

/* Every byte says its own offset, so that any mistake in the ring shows. */
static uint8_t byte_at(uint64_t offset) { return (uint8_t)(offset * 31 + (offset >> 8)); }
static enum channel channel_at(uint64_t offset) {
  return offset / 7 % 3 == 1 ? CHANNEL_STDERR : CHANNEL_STDOUT;
}

static void append_to(struct output_log *log, uint64_t end) {
  while (log->end < end) {
    uint8_t run[64];
    size_t length = 0;
    enum channel channel = channel_at(log->end);
    while (length < sizeof run && log->end + length < end &&
           channel_at(log->end + length) == channel) {
      run[length] = byte_at(log->end + length);
      length++;
    }
    output_log_append(log, channel, run, length);
  }
}

/* Reads from `offset` to the end; true where everything is right and one cut at most. */
static bool read_through(const struct output_log *log, uint64_t offset, size_t step,
                         uint64_t *cut_from, uint64_t *cut_to) {
  struct output_piece piece;
  *cut_from = *cut_to = 0;
  while (output_log_next(log, offset, step, &piece)) {
    if (piece.offset != offset) return false;
    if (piece.channel == CHANNEL_CUT) {
      if (*cut_to != 0 || piece.cut_to <= offset) return false;
      *cut_from = offset;
      *cut_to = piece.cut_to;
      offset = piece.cut_to;
      continue;
    }
    if (piece.length == 0 || piece.length > step) return false;
    for (size_t i = 0; i < piece.length; i++) {
      if (piece.bytes[i] != byte_at(offset + i)) return false;
      if (channel_at(offset + i) != piece.channel) return false;
    }
    offset += piece.length;
  }
  return offset == log->end;
}

static void test_output_log(void) {
  static const size_t capacities[] = {4096, 5000, 65536, 1u << 20};
  for (size_t i = 0; i < sizeof capacities / sizeof capacities[0]; i++) {
    size_t capacity = capacities[i];
    struct output_log log;
    uint64_t from, to;
    CHECK(output_log_open(&log, capacity));
    CHECK(read_through(&log, 0, 100, &from, &to) && output_log_start(&log) == 0);
    append_to(&log, capacity); /* exactly full: nothing is cut */
    CHECK(read_through(&log, 0, 1000, &from, &to) && to == 0 && output_log_start(&log) == 0);
    append_to(&log, capacity + 1);
    CHECK(read_through(&log, 0, 4096, &from, &to));
    CHECK(from == capacity / 4 && to == capacity / 4 + 1 && output_log_start(&log) == to);
    append_to(&log, 3 * capacity + 123);
    CHECK(read_through(&log, 0, 333, &from, &to));
    CHECK(from == capacity / 4 && to == log.end - (capacity - capacity / 4));
    CHECK(read_through(&log, from + 5, 64, &from, &to) && from == capacity / 4 + 5);
    CHECK(read_through(&log, log.end - 10, 64, &from, &to) && to == 0);
    struct output_piece piece;
    CHECK(!output_log_next(&log, log.end, 64, &piece));
    CHECK(!output_log_next(&log, log.end + 1, 64, &piece));
    output_log_close(&log);
  }
}

/* One append that is larger than everything keeps its head and its tail. */
static void test_output_log_large_append(void) {
  static uint8_t bytes[50000];
  for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 7);
  struct output_log log;
  struct output_piece piece;
  CHECK(output_log_open(&log, 8192));
  output_log_append(&log, CHANNEL_STDERR, bytes, sizeof bytes);
  CHECK(log.end == sizeof bytes && output_log_start(&log) == sizeof bytes - 6144);
  CHECK(output_log_next(&log, 0, 99999, &piece) && piece.length == 2048);
  CHECK(piece.channel == CHANNEL_STDERR && memcmp(piece.bytes, bytes, 2048) == 0);
  CHECK(output_log_next(&log, sizeof bytes - 1, 10, &piece) && piece.bytes[0] == bytes[49999]);
  output_log_close(&log);
}

/* P3: what room says fits without cutting anything from the offset on. */
static void test_output_log_room(void) {
  unsigned long long random = 12345;
  for (unsigned round = 0; round < 200; round++) {
    struct output_log log;
    size_t capacity = 4096 + random_next(&random) % 60000;
    CHECK(output_log_open(&log, capacity));
    uint64_t reader_at = 0;
    for (unsigned step = 0; step < 40; step++) {
      size_t wanted = 1 + random_next(&random) % 20000;
      size_t room = output_log_room(&log, reader_at, wanted);
      CHECK(room <= wanted);
      append_to(&log, log.end + room);
      uint64_t from, to;
      CHECK(read_through(&log, reader_at, 4096, &from, &to) && to == 0);
      if (random_next(&random) % 2 == 0) {
        reader_at += random_next(&random) % (log.end - reader_at + 1);
      }
      CHECK(reader_at < log.end || room > 0 || wanted == 0 || log.end == 0);
    }
    output_log_close(&log);
  }
}

/* L4: beyond the budget logs cut earlier, but never lose their order or their end. */
static void test_output_log_budget(void) {
  struct output_log log;
  uint64_t from, to;
  output_log_set_budget(20000);
  CHECK(output_log_open(&log, 1u << 20));
  append_to(&log, 300000);
  CHECK(read_through(&log, 0, 4096, &from, &to) && to > 0 && log.end == 300000);
  CHECK(log.head.size + log.tail.size < 20000);
  size_t room = output_log_room(&log, log.end, 65536);
  CHECK(room > 0 && room <= log.tail.size);
  output_log_close(&log);
  output_log_set_budget(64u << 20);
}

static void test_paths(void) {
  CHECK(path_check(TEXT("/")) == NULL);
  CHECK(path_check(TEXT("/a/b/c")) == NULL);
  CHECK(path_check(TEXT("/a//b/./c/")) == NULL);
  CHECK(path_check(TEXT("/..a/b..")) == NULL);
  CHECK(path_check(TEXT("/...")) == NULL);
  CHECK(path_check(TEXT("")) != NULL);
  CHECK(path_check(TEXT("a/b")) != NULL);
  CHECK(path_check(TEXT("/..")) != NULL);
  CHECK(path_check(TEXT("/a/../b")) != NULL);
  CHECK(path_check(TEXT("/a/..")) != NULL);
  CHECK(path_check(TEXT("/a/../")) != NULL);
  CHECK(path_check(TEXT("/a\0b")) != NULL);
  static uint8_t name[PATH_BYTES_MAX + 1];
  memset(name, 'x', sizeof name);
  name[0] = '/';
  CHECK(path_check((struct bytes){name, PATH_BYTES_MAX}) == NULL);
  CHECK(path_check((struct bytes){name, PATH_BYTES_MAX + 1}) != NULL);
  CHECK(path_status(ENOENT) == STATUS_PATH_NOT_FOUND && path_status(ELOOP) == STATUS_PATH_IS_LINK);
  CHECK(path_status(ENOSPC) == STATUS_DISK_FULL && path_status(EACCES) == STATUS_PATH_DENIED);
}

static void test_users(void) {
  static struct user user;
  static const char passwd[] =
      "root:x:0:0:root:/root:/bin/bash\n"
      "broken\n"
      "half:x:12\n"
      "badid:x:abc:1:::\n"
      "minus:x:4294967295:1::/:/bin/sh\n"
      "odd:x:7:7:a:b:c:relative\n"
      "user:x:1000:1001:Some One,,,:/home/user:\n"
      "last:x:5:6::/last:/bin/last";
  CHECK(user_find(passwd, "root", &user) && user.uid == 0 && strcmp(user.shell, "/bin/bash") == 0);
  CHECK(user_find(passwd, "user", &user) && user.uid == 1000 && user.gid == 1001);
  CHECK(strcmp(user.home, "/home/user") == 0 && strcmp(user.shell, "/bin/sh") == 0);
  CHECK(user_find(passwd, "last", &user) && user.uid == 5 && strcmp(user.home, "/last") == 0);
  CHECK(!user_find(passwd, "use", &user) && !user_find(passwd, "users", &user));
  CHECK(!user_find(passwd, "half", &user) && !user_find(passwd, "badid", &user));
  CHECK(!user_find(passwd, "minus", &user) && !user_find("", "root", &user));
  CHECK(!user_find(passwd, "", &user) && !user_find(passwd, "broken", &user));

  CHECK(user_find(passwd, "user", &user));
  user_find_groups("a:x:10:root,user\nb:x:11:users,xuser\nc:x:1001:user\nd:x:12:user\n"
                   "bad:x:zz:user\ne:x:13:a,user,b\nf:x:14:", &user);
  CHECK(user.group_count == 4);
  CHECK(user.groups[0] == 1001 && user.groups[1] == 10 && user.groups[2] == 12 &&
        user.groups[3] == 13);
  static char many[40000];
  size_t length = 0;
  for (int i = 0; i < 600; i++) {
    length += (size_t)snprintf(many + length, sizeof many - length, "g%d:x:%d:user\n", i, 2000 + i);
  }
  user_find_groups(many, &user);
  CHECK(user.group_count == USER_GROUPS_MAX);
}

static void test_timer_list(void) {
  static const char text[] =
      "Timer List Version: v0.9\nnow at 1000000000 nsecs\n\ncpu: 0\n clock 0:\n"
      "  .offset:     0 nsecs\nactive timers:\n"
      " #0: <0>, tick_sched_timer, S:01\n # expires at 1004000000-1004000000 nsecs [in 1 to 1]\n"
      " #1: <0>, hrtimer_wakeup, S:01\n"
      " # expires at 1500000000-1500050000 nsecs [in 500000000 to 500050000 nsecs]\n"
      " clock 1:\n  .offset:     7000000000 nsecs\nactive timers:\n"
      " #0: <0>, hrtimer_wakeup, S:01\n"
      " # expires at 68000000000-68000000000 nsecs [in 67000000000 to 67000000000 nsecs]\n";
  int64_t due[8];
  CHECK(timer_list_parse(text, due, 8) == 2);
  CHECK(due[0] == 500050000 && due[1] == INT64_C(60000000000));
  CHECK(timer_list_parse(text, due, 1) == 1);
  CHECK(timer_list_parse("", due, 8) == 0);

  /* A stranger's timer (3 s) does not take the place of a real one of the workload. */
  int64_t all[] = {INT64_C(3000000000), INT64_C(50000000000), INT64_C(9000000000)};
  struct sleeper sleepers[] = {{11, "long", INT64_C(60000000000)}, {12, "short", 10000000000}};
  struct user_timer timers[4];
  CHECK(timer_list_match(all, 3, sleepers, 2, timers, 4) == 2);
  CHECK(timers[0].pid == 12 && timers[0].due_in_ns == INT64_C(9000000000));
  CHECK(timers[1].pid == 11 && timers[1].due_in_ns == INT64_C(50000000000));

  /* Too many: the soonest stay. */
  int64_t three[] = {30, 10, 20};
  struct sleeper any[] = {{1, "a", TIMER_UNBOUNDED}, {2, "b", TIMER_UNBOUNDED}, {3, "c", 100}};
  CHECK(timer_list_match(three, 3, any, 3, timers, 2) == 2);
  CHECK(timers[0].due_in_ns == 10 && timers[1].due_in_ns == 20);
}

int main(void) {
  test_fields();
  test_field_overflow();
  test_frames_in_any_pieces();
  test_resync_anywhere();
  test_resync_inside_resync();
  test_release_of_held_bytes();
  test_violations();
  test_largest_frame();
  test_synced();
  test_requests();
  test_byte_queue();
  test_output_log();
  test_output_log_large_append();
  test_output_log_room();
  test_output_log_budget();
  test_paths();
  test_users();
  test_timer_list();
  return checks_report("unit");
}
