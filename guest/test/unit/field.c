/* Fields: their wire form, cut off anywhere, and a writer that overflows. */
#include <string.h>

#include "../../src/field.h"
#include "../../src/protocol.h"
#include "../check.h"
#include "unit.h"

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

void unit_fields(void) {
  test_fields();
  test_field_overflow();
}
