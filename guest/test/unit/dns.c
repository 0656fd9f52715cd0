/* Questions to the resolver inside, and its answers. */
#include "../../src/dns.h"

#include <string.h>

#include "../check.h"
#include "unit.h"

static struct name_table names;

/* A question as glibc asks it: id 0x1234, recursion wanted. */
static struct bytes question(const char *name, uint16_t type) {
  static uint8_t message[DNS_QUESTION_MAX];
  static const uint8_t header[12] = {0x12, 0x34, 1, 0, 0, 1};
  memcpy(message, header, sizeof header);
  size_t at = sizeof header;
  while (*name != '\0') {
    size_t label = strcspn(name, ".");
    message[at++] = (uint8_t)label;
    memcpy(message + at, name, label);
    at += label;
    name += label + (name[label] == '.');
  }
  const uint8_t tail[5] = {0, (uint8_t)(type >> 8), (uint8_t)type, 0, 1};
  memcpy(message + at, tail, sizeof tail);
  return (struct bytes){message, at + sizeof tail};
}

static uint8_t answer[DNS_ANSWER_MAX];

static unsigned rcode(void) { return answer[3] & 15; }
static unsigned records(void) { return answer[7]; }

static void test_addresses(void) {
  struct bytes asked = question("WWW.Example.com", 1);
  size_t length = dns_answer(asked, &names, answer);
  CHECK(length == asked.length + 16);
  CHECK(answer[0] == 0x12 && answer[1] == 0x34 && answer[2] == 0x81 && answer[3] == 0x80);
  CHECK(records() == 1 && memcmp(answer + 12, asked.at + 12, asked.length - 12) == 0);
  const uint8_t record[] = {0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 198, 18, 0, 2};
  CHECK(memcmp(answer + asked.length, record, sizeof record) == 0);
  CHECK(strcmp(name_table_name(&names, NAMES_FIRST_ADDRESS + 2), "www.example.com") == 0);

  asked = question("any.localhost", 1);
  length = dns_answer(asked, &names, answer);
  CHECK(memcmp(answer + length - 4, "\x7f\0\0\1", 4) == 0);
  CHECK(names.count == 1);
}

static void test_other_types(void) {
  const uint16_t types[] = {28, 15, 16, 33, 65, 6};
  for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
    struct bytes asked = question("www.example.com", types[i]);
    CHECK(dns_answer(asked, &names, answer) == asked.length && rcode() == 0 && records() == 0);
  }
}

static void test_reverse(void) {
  struct bytes asked = question("2.0.18.198.in-addr.arpa", 12);
  size_t length = dns_answer(asked, &names, answer);
  CHECK(rcode() == 0 && records() == 1);
  CHECK(memcmp(answer + length - 17, "\3www\7example\3com", 17) == 0);
  const char *unknown[] = {"3.0.18.198.in-addr.arpa", "2.0.18.198.ip6.arpa", "256.0.18.198.in-addr.arpa",
                           "-1.0.18.198.in-addr.arpa", "2.0.18.in-addr.arpa", "www.example.com"};
  for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
    CHECK(dns_answer(question(unknown[i], 12), &names, answer) > 0 && rcode() == 3 && records() == 0);
  }
}

static void test_refusals(void) {
  CHECK(dns_answer(question("a b.example", 1), &names, answer) > 0 && rcode() == 3);
  CHECK(dns_answer(question("", 1), &names, answer) > 0 && rcode() == 3);
  struct bytes asked = question("www.example.com", 1);
  uint8_t *message = (uint8_t *)(uintptr_t)asked.at;
  message[asked.length - 1] = 3; /* another class */
  CHECK(dns_answer(asked, &names, answer) > 0 && rcode() == 5);
  message[asked.length - 1] = 1;
  message[12] = 0xc0; /* a pointer where a name begins */
  CHECK(dns_answer(asked, &names, answer) == 12 && rcode() == 1);
  message[12] = 3;
  message[5] = 2; /* two questions */
  CHECK(dns_answer(asked, &names, answer) == 12 && rcode() == 1 && answer[5] == 0);
  message[5] = 1;
  message[2] = 0x28; /* an update */
  CHECK(dns_answer(asked, &names, answer) == 12 && rcode() == 4);
  message[2] = 0x81; /* an answer */
  CHECK(dns_answer(asked, &names, answer) == 0);
  message[2] = 1;
  for (size_t length = 0; length < asked.length; length++) {
    size_t got = dns_answer((struct bytes){asked.at, length}, &names, answer);
    CHECK(length < 12 ? got == 0 : got == 12 && rcode() == 1);
  }
}

void unit_dns(void) {
  test_addresses();
  test_other_types();
  test_reverse();
  test_refusals();
  name_table_close(&names);
}
