/* Requests: what they say, and what is refused. */
#include "../../src/request.h"
#include "../check.h"
#include "unit.h"

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
  field_put_bytes(&writer, TAG_LIMIT, "xx", 2);
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
  field_put_number(&writer, TAG_RECURSIVE, 2);
  CHECK(decode(&writer, &request) == STATUS_BAD_REQUEST);
  field_roll_back(&writer, mark);
  field_put_bytes(&writer, TAG_ROWS, "24", 2);
  CHECK(decode(&writer, &request) == STATUS_BAD_REQUEST);
  field_roll_back(&writer, mark);
  field_put_bytes(&writer, TAG_PORT, "80", 2);
  CHECK(decode(&writer, &request) == STATUS_BAD_REQUEST);
  field_roll_back(&writer, mark);
  field_put_number(&writer, TAG_PORT, 80);
  CHECK(decode(&writer, &request) == STATUS_OK && request_number(&request, TAG_PORT, 0) == 80);
  field_roll_back(&writer, mark);
  field_put_bytes(&writer, TAG_TARGET, "a\0b", 3);
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

void unit_requests(void) {
  test_requests();
}
