/* ATTACH: readers of output. See attach.h, and output_log.h for what an offset means. */
#include "attach.h"

#include <string.h>

#include "operation.h"
#include "process.h"
#include "stream.h"

#define CUT_PAYLOAD (OUTPUT_HEADER + 16u)

static struct stream *next_reader(const struct process *process, struct stream *previous) {
  struct stream *stream = stream_next(previous);
  while (stream != NULL && (stream->op != OP_ATTACH || stream->owner != process)) {
    stream = stream_next(stream);
  }
  return stream;
}

bool readers_exist(const struct process *process) { return next_reader(process, NULL) != NULL; }

bool readers_oldest(const struct process *process, uint64_t *offset) {
  bool found = false;
  for (struct stream *reader = next_reader(process, NULL); reader != NULL;
       reader = next_reader(process, reader)) {
    if (!found || reader->offset < *offset) *offset = reader->offset;
    found = true;
  }
  return found;
}

void readers_dismiss(struct process *process) {
  for (struct stream *stream = stream_next(NULL); stream != NULL; stream = stream_next(stream)) {
    if (stream->owner != process || (stream->op != OP_ATTACH && stream->op != OP_STDIN)) continue;
    if (process->writer == stream) process->writer = NULL;
    uint32_t id = stream->id;
    stream_close(stream);
    struct field_writer *end = answer_begin(STATUS_CANCELLED);
    field_put_string(end, TAG_MESSAGE, "The process was forgotten");
    answer_send(FRAME_END, id);
  }
}

static void send_end(struct stream *stream, const struct process *process) {
  uint32_t id = stream->id;
  stream_close(stream);
  struct field_writer *end = answer_begin(STATUS_OK);
  process_put_exit(process, end);
  answer_send(FRAME_END, id);
}

static size_t reader_fill(struct stream *stream, uint8_t *payload, size_t room) {
  struct process *process = stream->owner;
  if (stream->offset >= process->log.end) {
    if (process->phase == PROCESS_ENDED) send_end(stream, process);
    return 0;
  }
  if (room <= OUTPUT_HEADER) return 0;
  struct output_piece piece;
  if (!output_log_next(&process->log, stream->offset, room - OUTPUT_HEADER, &piece)) return 0;
  memset(payload, 0, OUTPUT_HEADER);
  payload[0] = (uint8_t)piece.channel;
  wire_put_u64(payload + 8, piece.offset);
  if (piece.channel == CHANNEL_CUT) {
    if (room < CUT_PAYLOAD) return 0;
    wire_put_u64(payload + OUTPUT_HEADER, piece.offset);
    wire_put_u64(payload + OUTPUT_HEADER + 8, piece.cut_to);
    stream->offset = piece.cut_to;
    process_read_on(process);
    return CUT_PAYLOAD;
  }
  memcpy(payload + OUTPUT_HEADER, piece.bytes, piece.length);
  stream->offset += piece.length;
  process_read_on(process);
  return OUTPUT_HEADER + piece.length;
}

static void reader_closed(struct stream *stream) {
  struct process *process = stream->owner;
  stream_close(stream);
  process_read_on(process);
}

static const struct stream_handler READER = {.fill = reader_fill, .close = reader_closed};

void operation_attach(uint32_t id, const struct request *request) {
  struct process *process = process_find(request_number(request, TAG_PROCESS, 0));
  if (process == NULL) {
    answer_status(id, STATUS_PROCESS_NOT_FOUND, "There is no such process");
    return;
  }
  uint64_t offset = request_number(request, TAG_OFFSET, 0);
  if (offset > process->log.end) {
    answer_status(id, STATUS_BAD_REQUEST, "The offset is after the end of the output");
    return;
  }
  struct stream *stream = stream_open(id, OP_ATTACH, &READER, process);
  if (stream == NULL) return;
  stream->offset = offset;
  process_met_reader(process);
  struct field_writer *answer = answer_begin(STATUS_OK);
  field_put_number(answer, TAG_LOG_START, output_log_start(&process->log));
  field_put_number(answer, TAG_LOG_END, process->log.end);
  answer_send(FRAME_RESPONSE, id);
}
