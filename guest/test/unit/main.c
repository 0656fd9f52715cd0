/* Runs the unit tests of every module. */
#include "../check.h"
#include "unit.h"

int main(void) {
  unit_fields();
  unit_frames();
  unit_requests();
  unit_byte_queue();
  unit_output_logs();
  unit_paths();
  unit_users();
  unit_timer_lists();
  unit_watch_trees();
  unit_known_timers();
  unit_figures();
  unit_random_names();
  unit_text_files();
  unit_frozen_waits();
  unit_name_tables();
  unit_dns();
  return checks_report("unit");
}
