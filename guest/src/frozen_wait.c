/* See frozen_wait.h. */
#include "frozen_wait.h"

#include <stdio.h>

#define NS_PER_S INT64_C(1000000000)
#define US_PER_S INT64_C(1000000)

/* Numbers of x86-64. */
#define CALL_SELECT 23
#define CALL_PSELECT6 270
#define CALL_PPOLL 271

bool frozen_wait_parse(const char *text, struct frozen_wait *wait) {
  long call = -1;
  unsigned long long value[6];
  unsigned long long stack = 0;
  int found = sscanf(text, "%ld %llx %llx %llx %llx %llx %llx %llx", &call, &value[0], &value[1],
                     &value[2], &value[3], &value[4], &value[5], &stack);
  /* In a program of 32 bits, whose stack lies low, the numbers are those of other calls. */
  if (found != 8 || stack <= UINT32_MAX) return false;
  switch (call) {
    case CALL_SELECT:
    case CALL_PSELECT6:
      wait->address = value[4];
      break;
    case CALL_PPOLL:
      wait->address = value[2];
      break;
    default:
      return false;
  }
  wait->is_timeval = call == CALL_SELECT;
  return wait->address != 0;
}

bool frozen_wait_shorten(int64_t rest[2], bool is_timeval, uint64_t passed_ns) {
  int64_t per_s = is_timeval ? US_PER_S : NS_PER_S;
  if (rest[0] < 0 || rest[1] < 0 || rest[1] >= per_s) return false;
  if ((rest[0] == 0 && rest[1] == 0) || passed_ns == 0) return false;
  int64_t passed_s = (int64_t)(passed_ns / (uint64_t)NS_PER_S);
  int64_t passed = (int64_t)(passed_ns % (uint64_t)NS_PER_S) / (NS_PER_S / per_s);
  if (rest[0] < passed_s || (rest[0] == passed_s && rest[1] <= passed)) {
    rest[0] = rest[1] = 0;
    return true;
  }
  rest[0] -= passed_s;
  rest[1] -= passed;
  if (rest[1] < 0) {
    rest[0] -= 1;
    rest[1] += per_s;
  }
  return true;
}
