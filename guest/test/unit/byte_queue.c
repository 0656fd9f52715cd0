/* A queue of bytes: its limit and its order. */
#include <string.h>

#include "../../src/byte_queue.h"
#include "../check.h"
#include "unit.h"

static void test_byte_queue(void) {
  struct byte_queue queue;
  CHECK(byte_queue_open(&queue, 10));
  CHECK(byte_queue_put(&queue, TEXT("abcdefgh")));
  CHECK(!byte_queue_put(&queue, TEXT("123")));
  byte_queue_drop(&queue, 6);
  CHECK(byte_queue_put(&queue, TEXT("12345678")));
  CHECK(queue.length == 10 && !byte_queue_put(&queue, TEXT("x")));
  char all[16] = "";
  size_t taken = 0;
  while (queue.length > 0) {
    struct bytes front = byte_queue_front(&queue);
    memcpy(all + taken, front.at, front.length);
    taken += front.length;
    byte_queue_drop(&queue, front.length);
  }
  CHECK(taken == 10 && memcmp(all, "gh12345678", 10) == 0);
  byte_queue_close(&queue);
  CHECK(!byte_queue_put(&queue, TEXT("x")));
}

void unit_byte_queue(void) {
  test_byte_queue();
}
