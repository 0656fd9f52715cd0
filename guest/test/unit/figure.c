/* Figures out of the kernel's texts. */
#include "../../src/figure.h"

#include "../check.h"
#include "unit.h"

void unit_figures(void) {
  const char *cpu = "usage_usec 1234\nuser_usec 1000\nsystem_usec 234\n";
  CHECK(figure_after(cpu, "usage_usec ") == 1234 && figure_after(cpu, "system_usec ") == 234);
  CHECK(figure_after(cpu, "nothing ") == 0 && figure_after("", "usage_usec ") == 0);
  CHECK(figure_disk_written("    1 2 3 4   5 6 7 8 9\n") == 7 * 512);
  CHECK(figure_disk_written("") == 0 && figure_disk_written("1 2 3") == 0);
}
