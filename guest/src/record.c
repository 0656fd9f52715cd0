/* See record.h. */
#include "record.h"

#include <errno.h>
#include <unistd.h>

#define LENGTH_BYTES 4u

void record_writer_open(struct record_writer *writer, int fd) {
  writer->fd = fd;
  writer->length = 0;
  writer->is_unread = false;
}

void record_begin(struct record_writer *writer, struct field_writer *fields) {
  if (sizeof writer->held - writer->length < LENGTH_BYTES + RECORD_MAX) record_flush(writer);
  field_writer_open(fields, writer->held + writer->length + LENGTH_BYTES, RECORD_MAX);
}

bool record_end(struct record_writer *writer, const struct field_writer *fields) {
  if (fields->overflowed) return false;
  wire_put_u32(writer->held + writer->length, (uint32_t)fields->length);
  writer->length += LENGTH_BYTES + fields->length;
  return true;
}

void record_flush(struct record_writer *writer) {
  size_t at = 0;
  while (at < writer->length) {
    ssize_t put = write(writer->fd, writer->held + at, writer->length - at);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) break;
    at += (size_t)put;
  }
  if (at < writer->length) writer->is_unread = true;
  writer->length = 0;
}
