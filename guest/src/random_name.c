/* See random_name.h. */
#include "random_name.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define PREFIX ".perdure-"
#define DIGITS 16

void random_name(char *name) {
  uint64_t value = 0;
  /* Early in a boot there may be no randomness yet; O_EXCL makes a poor name safe, only slower. */
  if (getrandom(&value, sizeof value, GRND_NONBLOCK) != (ssize_t)sizeof value) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    value = (uint64_t)now.tv_nsec << 32 ^ (uint64_t)now.tv_sec << 20 ^ (uint64_t)getpid();
  }
  snprintf(name, RANDOM_NAME_BYTES, PREFIX "%016llx", (unsigned long long)value);
}

bool random_name_is(const char *name) {
  size_t prefix = sizeof PREFIX - 1;
  return strncmp(name, PREFIX, prefix) == 0 && strlen(name) == prefix + DIGITS &&
         strspn(name + prefix, "0123456789abcdef") == DIGITS;
}
