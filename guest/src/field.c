/* See field.h. */
#include "field.h"

#include <string.h>

uint16_t wire_get_u16(const uint8_t *at) { return (uint16_t)(at[0] | at[1] << 8); }

uint32_t wire_get_u32(const uint8_t *at) {
  return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

uint64_t wire_get_u64(const uint8_t *at) {
  return (uint64_t)wire_get_u32(at) | (uint64_t)wire_get_u32(at + 4) << 32;
}

void wire_put_u16(uint8_t *at, uint16_t value) {
  at[0] = (uint8_t)value;
  at[1] = (uint8_t)(value >> 8);
}

void wire_put_u32(uint8_t *at, uint32_t value) {
  wire_put_u16(at, (uint16_t)value);
  wire_put_u16(at + 2, (uint16_t)(value >> 16));
}

void wire_put_u64(uint8_t *at, uint64_t value) {
  wire_put_u32(at, (uint32_t)value);
  wire_put_u32(at + 4, (uint32_t)(value >> 32));
}

void field_reader_open(struct field_reader *reader, struct bytes buffer) {
  reader->at = buffer.at;
  reader->end = buffer.length > 0 ? buffer.at + buffer.length : buffer.at;
  reader->malformed = false;
}

bool field_next(struct field_reader *reader, struct field *field) {
  size_t left = (size_t)(reader->end - reader->at);
  if (reader->malformed || left == 0) return false;
  if (left < FIELD_HEADER) {
    reader->malformed = true;
    return false;
  }
  size_t length = wire_get_u32(reader->at + 2);
  if (length > left - FIELD_HEADER) {
    reader->malformed = true;
    return false;
  }
  field->tag = wire_get_u16(reader->at);
  field->value.at = reader->at + FIELD_HEADER;
  field->value.length = length;
  reader->at += FIELD_HEADER + length;
  return true;
}

bool field_number(const struct field *field, uint64_t *number) {
  if (field->value.length != 8) return false;
  *number = wire_get_u64(field->value.at);
  return true;
}

void field_writer_open(struct field_writer *writer, uint8_t *buffer, size_t capacity) {
  writer->at = buffer;
  writer->length = 0;
  writer->capacity = capacity;
  writer->overflowed = false;
}

void field_put_bytes(struct field_writer *writer, uint16_t tag, const void *value, size_t length) {
  size_t left = writer->capacity - writer->length;
  if (writer->overflowed || left < FIELD_HEADER || length > left - FIELD_HEADER) {
    writer->overflowed = true;
    return;
  }
  uint8_t *at = writer->at + writer->length;
  wire_put_u16(at, tag);
  wire_put_u32(at + 2, (uint32_t)length);
  if (length > 0) memcpy(at + FIELD_HEADER, value, length);
  writer->length += FIELD_HEADER + length;
}

void field_put_string(struct field_writer *writer, uint16_t tag, const char *text) {
  field_put_bytes(writer, tag, text, strlen(text));
}

void field_put_number(struct field_writer *writer, uint16_t tag, uint64_t number) {
  uint8_t value[8];
  wire_put_u64(value, number);
  field_put_bytes(writer, tag, value, sizeof value);
}

size_t field_open(struct field_writer *writer, uint16_t tag) {
  size_t opened = writer->length;
  field_put_bytes(writer, tag, NULL, 0);
  return opened;
}

void field_close(struct field_writer *writer, size_t opened) {
  if (writer->overflowed) return;
  wire_put_u32(writer->at + opened + 2, (uint32_t)(writer->length - opened - FIELD_HEADER));
}

void field_roll_back(struct field_writer *writer, size_t mark) {
  if (mark < writer->length) writer->length = mark;
  writer->overflowed = false;
}

bool bytes_to_string(struct bytes value, char *buffer, size_t capacity) {
  if (value.length >= capacity) return false;
  if (value.length > 0) memcpy(buffer, value.at, value.length);
  buffer[value.length] = '\0';
  return true;
}

bool bytes_equal(struct bytes value, const char *text) {
  return value.length == strlen(text) && memcmp(value.at, text, value.length) == 0;
}
