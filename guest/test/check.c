#include "check.h"

unsigned checks_made;
unsigned checks_failed;

int checks_report(const char *name) {
  printf("%s: %u checks, %u failed\n", name, checks_made, checks_failed);
  return checks_failed == 0 ? 0 : 1;
}
