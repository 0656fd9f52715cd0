/* See request.h. */
#include "request.h"

#include <string.h>

enum form { FORM_UNKNOWN, FORM_NUMBER, FORM_FLAG, FORM_STRING, FORM_BYTES };

static enum form form_of(uint16_t tag) {
  switch (tag) {
    case TAG_MESSAGE:
    case TAG_VERSION:
    case TAG_JSON:
    case TAG_ARGV:
    case TAG_ENV:
    case TAG_CWD:
    case TAG_USER:
    case TAG_PATH:
    case TAG_KIND:
    case TAG_BOOT_ID:
    case TAG_HOSTNAME:
    case TAG_MACHINE_ID:
    case TAG_NAME:
    case TAG_TARGET:
    case TAG_FROM:
      return FORM_STRING;
    case TAG_BYTES:
    case TAG_FILE:
    case TAG_HOOK:
    case TAG_ATTRIBUTE:
    case TAG_TIMER:
    case TAG_STAT:
    case TAG_PROCESS_ENTRY:
      return FORM_BYTES;
    case TAG_STDIN:
    case TAG_RUNNING:
    case TAG_TIMED_OUT:
    case TAG_FROZEN:
    case TAG_TREE:
    case TAG_PARENTS:
    case TAG_REPLACE:
    case TAG_RECURSIVE:
      return FORM_FLAG;
    case TAG_DEADLINE_MS:
    case TAG_REALTIME_NS:
    case TAG_MONOTONIC_NS:
    case TAG_DELTA_NS:
    case TAG_GENERATION:
    case TAG_TIMEOUT_MS:
    case TAG_LOG_BYTES:
    case TAG_PROCESS:
    case TAG_PID:
    case TAG_EXIT_CODE:
    case TAG_SIGNAL:
    case TAG_LOG_START:
    case TAG_LOG_END:
    case TAG_CHANNEL:
    case TAG_MODE:
    case TAG_SIZE:
    case TAG_UID:
    case TAG_GID:
    case TAG_MTIME_NS:
    case TAG_OFFSET:
    case TAG_LENGTH:
    case TAG_VALUE:
    case TAG_STARTED_NS:
    case TAG_DUE_IN_MS:
    case TAG_CUT_FROM:
    case TAG_CUT_TO:
    case TAG_ROWS:
    case TAG_COLUMNS:
    case TAG_PORT:
    case TAG_CONNECTION:
    case TAG_ADDRESS:
      return FORM_NUMBER;
    default:
      return FORM_UNKNOWN;
  }
}

enum status request_decode_fields(struct bytes fields, struct request *request, const char **why) {
  request->present = 0;
  request->fields = fields;
  struct field_reader reader;
  struct field field;
  field_reader_open(&reader, fields);
  while (field_next(&reader, &field)) {
    enum form form = form_of(field.tag);
    if (form == FORM_UNKNOWN) continue;
    uint64_t number = 0;
    if ((form == FORM_NUMBER || form == FORM_FLAG) && !field_number(&field, &number)) {
      *why = "A number is not 8 bytes long";
      return STATUS_BAD_REQUEST;
    }
    if (form == FORM_FLAG && number > 1) {
      *why = "A flag is neither 0 nor 1";
      return STATUS_BAD_REQUEST;
    }
    if (form == FORM_STRING && memchr(field.value.at, 0, field.value.length) != NULL) {
      *why = "A string holds a zero byte";
      return STATUS_BAD_REQUEST;
    }
    request->present |= UINT64_C(1) << field.tag;
    request->number[field.tag] = number;
    request->slice[field.tag] = field.value;
  }
  if (reader.malformed) {
    *why = "A field is longer than its frame";
    return STATUS_BAD_REQUEST;
  }
  return STATUS_OK;
}

enum status request_decode(struct bytes payload, struct request *request, const char **why) {
  request->op = 0;
  if (payload.length < 2) {
    *why = "The request has no operation";
    return STATUS_BAD_REQUEST;
  }
  request->op = wire_get_u16(payload.at);
  struct bytes fields = {payload.at + 2, payload.length - 2};
  return request_decode_fields(fields, request, why);
}

bool request_has(const struct request *request, enum tag tag) {
  return (request->present >> tag & 1) != 0;
}

uint64_t request_number(const struct request *request, enum tag tag, uint64_t otherwise) {
  return request_has(request, tag) ? request->number[tag] : otherwise;
}

struct field_reader request_list(const struct request *request) {
  struct field_reader reader;
  field_reader_open(&reader, request->fields);
  return reader;
}

bool request_each(struct field_reader *reader, enum tag tag, struct bytes *value) {
  struct field field;
  while (field_next(reader, &field)) {
    if (field.tag != tag) continue;
    *value = field.value;
    return true;
  }
  return false;
}
