/* The smallest test harness: CHECK counts, prints what failed, and the exit code tells. */
#ifndef PERDURE_CHECK_H
#define PERDURE_CHECK_H

#include <stdio.h>

extern unsigned checks_made;
extern unsigned checks_failed;

#define CHECK(condition)                                                          \
  do {                                                                            \
    checks_made++;                                                                \
    if (!(condition)) {                                                           \
      if (++checks_failed <= 20)                                                  \
        fprintf(stderr, "%s:%d: %s: not %s\n", __FILE__, __LINE__, __func__,      \
                #condition);                                                      \
    }                                                                             \
  } while (0)

int checks_report(const char *name);

/* Deterministic randomness (xorshift64*). */
static inline unsigned long long random_next(unsigned long long *state) {
  *state ^= *state >> 12;
  *state ^= *state << 25;
  *state ^= *state >> 27;
  return *state * 2685821657736338717ULL;
}

#endif
