/* Waits that a freeze turned into a rest of time. */
#include "../../src/frozen_wait.h"
#include "../check.h"
#include "unit.h"

#define HIGH " 0x7ffd12345678 0x7f1234567890"

static void test_parse(void) {
  struct frozen_wait wait;
  CHECK(frozen_wait_parse("270 0x0 0x0 0x0 0x0 0x7ffd0010 0x7ffd0020" HIGH "\n", &wait));
  CHECK(wait.address == 0x7ffd0010 && !wait.is_timeval);
  CHECK(frozen_wait_parse("271 0x1000 0x2 0x7ffd0030 0x0 0x8 0x0" HIGH "\n", &wait));
  CHECK(wait.address == 0x7ffd0030 && !wait.is_timeval);
  CHECK(frozen_wait_parse("23 0x0 0x0 0x0 0x0 0x7ffd0040 0x0" HIGH, &wait));
  CHECK(wait.address == 0x7ffd0040 && wait.is_timeval);
  /* Without an end, another call, no call, a program of 32 bits, half a line, none. */
  CHECK(!frozen_wait_parse("270 0x0 0x0 0x0 0x0 0x0 0x0" HIGH, &wait));
  CHECK(!frozen_wait_parse("271 0x1000 0x2 0x0 0x0 0x8 0x0" HIGH, &wait));
  CHECK(!frozen_wait_parse("35 0x7ffd0040 0x7ffd0040 0x1 0x1 0x1 0x1" HIGH, &wait));
  CHECK(!frozen_wait_parse("-1 0x7ffd12345678 0x7f1234567890", &wait));
  CHECK(!frozen_wait_parse("running", &wait));
  CHECK(!frozen_wait_parse("270 0x0 0x0 0x0 0x0 0xffd00010 0x0 0xffd12345 0xf7f12345", &wait));
  CHECK(!frozen_wait_parse("270 0x0 0x0 0x0 0x0 0x7ffd0010", &wait));
  CHECK(!frozen_wait_parse("", &wait));
}

static bool shortened(int64_t s, int64_t part, bool is_timeval, uint64_t passed_ns, int64_t to_s,
                      int64_t to_part) {
  int64_t rest[2] = {s, part};
  return frozen_wait_shorten(rest, is_timeval, passed_ns) && rest[0] == to_s && rest[1] == to_part;
}

static bool left_alone(int64_t s, int64_t part, bool is_timeval, uint64_t passed_ns) {
  int64_t rest[2] = {s, part};
  return !frozen_wait_shorten(rest, is_timeval, passed_ns) && rest[0] == s && rest[1] == part;
}

static void test_shorten(void) {
  CHECK(shortened(10, 0, false, 1, 9, 999999999));
  CHECK(shortened(10, 5, false, 3000000005, 7, 0));
  CHECK(shortened(10, 5, true, 3000006000, 6, 999999));
  CHECK(shortened(10, 5, true, 999, 10, 5)); /* less than its unit */
  CHECK(shortened(2, 500000000, false, 2500000000, 0, 0));
  CHECK(shortened(2, 500000000, false, 2500000001, 0, 0));
  CHECK(shortened(2, 500000000, false, 2499999999, 0, 1));
  CHECK(shortened(1, 0, false, UINT64_MAX, 0, 0));
  CHECK(shortened(INT64_MAX, 999999, true, UINT64_MAX, INT64_MAX - 18446744073, 290448));
  CHECK(left_alone(0, 0, false, 1000000000));
  CHECK(left_alone(5, 0, false, 0));
  /* What is no time is not the kernel's. */
  CHECK(left_alone(-1, 0, false, 1000000000));
  CHECK(left_alone(1, -1, false, 1000000000));
  CHECK(left_alone(1, 1000000000, false, 1000000000));
  CHECK(left_alone(1, 1000000, true, 1000000000));
}

void unit_frozen_waits(void) {
  test_parse();
  test_shorten();
}
