/* See dns.h. */
#include "dns.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define HEADER 12u
#define LABEL_MAX 63u
#define TTL_SECONDS 60u
#define LOCALHOST 0x7f000001u

enum rcode {
  NO_ERROR = 0,
  FORMAT_ERROR = 1,
  SERVER_FAILURE = 2,
  NO_NAME = 3,
  NOT_IMPLEMENTED = 4,
  REFUSED = 5,
};
enum type { TYPE_A = 1, TYPE_PTR = 12, TYPE_ANY = 255 };
enum { CLASS_IN = 1 };

struct question {
  char name[NAME_BYTES_MAX + 1]; /* lower case, without the dot at the end */
  uint16_t type;
  uint16_t class;
  size_t end; /* of the question within the message */
};

/* Network byte order. */
static uint16_t get_u16(const uint8_t *at) { return (uint16_t)(at[0] << 8 | at[1]); }

static void put_u16(uint8_t *at, uint16_t value) {
  at[0] = (uint8_t)(value >> 8);
  at[1] = (uint8_t)value;
}

static void put_u32(uint8_t *at, uint32_t value) {
  put_u16(at, (uint16_t)(value >> 16));
  put_u16(at + 2, (uint16_t)value);
}

static char lower(uint8_t byte) {
  return (char)(byte >= 'A' && byte <= 'Z' ? byte - 'A' + 'a' : byte);
}

static bool is_of_names(char byte) {
  return (byte >= 'a' && byte <= 'z') || (byte >= '0' && byte <= '9') || byte == '-' || byte == '_';
}

/* NO_ERROR, NO_NAME for one that no host has, FORMAT_ERROR. */
static enum rcode read_name(struct bytes message, struct question *question) {
  size_t at = HEADER;
  size_t length = 0;
  enum rcode outcome = NO_ERROR;
  for (;;) {
    if (at >= message.length) return FORMAT_ERROR;
    size_t label = message.at[at++];
    if (label == 0) break;
    if (label > LABEL_MAX || label > message.length - at) return FORMAT_ERROR;
    if (length + (length > 0) + label > NAME_BYTES_MAX) return FORMAT_ERROR;
    if (length > 0) question->name[length++] = '.';
    for (size_t i = 0; i < label; i++) {
      char byte = lower(message.at[at++]);
      if (!is_of_names(byte)) outcome = NO_NAME;
      question->name[length++] = byte;
    }
  }
  question->name[length] = '\0';
  question->end = at;
  return length == 0 ? NO_NAME : outcome;
}

static enum rcode read_question(struct bytes message, struct question *question) {
  if (get_u16(message.at + 4) != 1) return FORMAT_ERROR;
  enum rcode outcome = read_name(message, question);
  if (outcome == FORMAT_ERROR) return FORMAT_ERROR;
  if (message.length - question->end < 4) return FORMAT_ERROR;
  question->type = get_u16(message.at + question->end);
  question->class = get_u16(message.at + question->end + 2);
  question->end += 4;
  if (question->class != CLASS_IN) return REFUSED;
  return outcome;
}

static bool is_localhost(const char *name) {
  size_t length = strlen(name);
  const char *tail = length > 10 ? name + length - 10 : "";
  return strcmp(name, "localhost") == 0 || strcmp(tail, ".localhost") == 0;
}

/* The name of `4.3.2.1.in-addr.arpa`, or NULL. */
static const char *name_of_reverse(const struct name_table *names, const char *reverse) {
  unsigned part[4];
  char rest[NAME_BYTES_MAX + 1];
  int read = sscanf(reverse, "%3u.%3u.%3u.%3u.%253s", &part[0], &part[1], &part[2], &part[3], rest);
  if (read != 5 || strcmp(rest, "in-addr.arpa") != 0) return NULL;
  uint32_t address = 0;
  for (int i = 3; i >= 0; i--) {
    if (part[i] > 255) return NULL;
    address = address << 8 | part[i];
  }
  return name_table_name(names, address);
}

static size_t put_name(uint8_t *at, const char *name) {
  uint8_t *begin = at;
  while (*name != '\0') {
    size_t label = strcspn(name, ".");
    *at++ = (uint8_t)label;
    memcpy(at, name, label);
    at += label;
    name += label;
    if (*name == '.') name++;
  }
  *at++ = 0;
  return (size_t)(at - begin);
}

/* Everything of a record but its data. */
static uint8_t *put_record(uint8_t *at, uint16_t type, uint16_t bytes) {
  put_u16(at, 0xc000 | HEADER); /* the name of the question */
  put_u16(at + 2, type);
  put_u16(at + 4, CLASS_IN);
  put_u32(at + 6, TTL_SECONDS);
  put_u16(at + 10, bytes);
  return at + 12;
}

/* The end of the one record that answers; `at` where there is none. */
static uint8_t *put_data(uint8_t *at, const struct question *question, struct name_table *names,
                         enum rcode *rcode) {
  if (question->type == TYPE_A || question->type == TYPE_ANY) {
    uint32_t address = is_localhost(question->name) ? LOCALHOST
                                                    : name_table_address(names, question->name);
    if (address == 0) {
      *rcode = SERVER_FAILURE;
      return at;
    }
    uint8_t *data = put_record(at, TYPE_A, 4);
    put_u32(data, address);
    return data + 4;
  }
  if (question->type != TYPE_PTR) return at;
  const char *name = name_of_reverse(names, question->name);
  if (name == NULL) {
    *rcode = NO_NAME;
    return at;
  }
  uint8_t encoded[NAME_BYTES_MAX + 2];
  size_t length = put_name(encoded, name);
  uint8_t *data = put_record(at, TYPE_PTR, (uint16_t)length);
  memcpy(data, encoded, length);
  return data + length;
}

size_t dns_answer(struct bytes message, struct name_table *names, uint8_t answer[DNS_ANSWER_MAX]) {
  if (message.length < HEADER || message.length > DNS_QUESTION_MAX) return 0;
  uint16_t flags = get_u16(message.at + 2);
  if ((flags & 0x8000) != 0) return 0; /* somebody's answer */
  struct question question = {.end = HEADER};
  enum rcode rcode = (flags & 0x7800) == 0 ? read_question(message, &question) : NOT_IMPLEMENTED;
  bool is_read = rcode != FORMAT_ERROR && rcode != NOT_IMPLEMENTED;
  size_t copied = is_read ? question.end : HEADER;
  memcpy(answer, message.at, copied);
  uint8_t *end = answer + copied;
  if (rcode == NO_ERROR) end = put_data(end, &question, names, &rcode);
  bool has_record = end > answer + copied;
  /* A response, recursion there for whoever asked for it. */
  put_u16(answer + 2, (uint16_t)(0x8080 | (flags & 0x7900) | rcode));
  put_u16(answer + 4, is_read ? 1 : 0);
  put_u16(answer + 6, has_record ? 1 : 0);
  put_u16(answer + 8, 0);
  put_u16(answer + 10, 0);
  return (size_t)(end - answer);
}
