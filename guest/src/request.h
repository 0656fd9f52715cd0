/*
 * A REQUEST's payload, decoded and checked against the tag table once, so that no operation looks
 * at raw fields of the wrong type. Slices point into the payload: valid while the payload is.
 *
 * Invariants: numbers are 8 bytes, flags 0 or 1, strings hold no zero byte. Of a tag that repeats
 * `slice` is the last one; lists are walked with `request_each`.
 */
#ifndef PERDURE_REQUEST_H
#define PERDURE_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "field.h"
#include "protocol.h"

struct request {
  uint16_t op;
  uint64_t present; /* one bit per tag */
  uint64_t number[TAG_LIMIT];
  struct bytes slice[TAG_LIMIT];
  struct bytes fields;
};

/* STATUS_OK or STATUS_BAD_REQUEST with `why`. `op` is set wherever it could be read. */
enum status request_decode(struct bytes payload, struct request *request, const char **why);
/* The same for nested fields (no op). */
enum status request_decode_fields(struct bytes fields, struct request *request, const char **why);
bool request_has(const struct request *request, enum tag tag);
uint64_t request_number(const struct request *request, enum tag tag, uint64_t otherwise);
/* Walks the fields with this tag: start with a reader from `request_list`. */
struct field_reader request_list(const struct request *request);
bool request_each(struct field_reader *reader, enum tag tag, struct bytes *value);

#endif
