/* The kernel's list of timers, and whose they are. */
#include "../../src/timer_list.h"
#include "../check.h"
#include "unit.h"

static void test_timer_list(void) {
  static const char text[] =
      "Timer List Version: v0.9\nnow at 1000000000 nsecs\n\ncpu: 0\n clock 0:\n"
      "  .offset:     0 nsecs\nactive timers:\n"
      " #0: <0>, tick_sched_timer, S:01\n # expires at 1004000000-1004000000 nsecs [in 1 to 1]\n"
      " #1: <0>, hrtimer_wakeup, S:01\n"
      " # expires at 1500000000-1500050000 nsecs [in 500000000 to 500050000 nsecs]\n"
      " clock 1:\n  .offset:     7000000000 nsecs\nactive timers:\n"
      " #0: <0>, hrtimer_wakeup, S:01\n"
      " # expires at 68000000000-68000000000 nsecs [in 67000000000 to 67000000000 nsecs]\n";
  int64_t due[8];
  int64_t now = 0;
  CHECK(timer_list_parse(text, due, 8, &now) == 2 && now == 1000000000);
  CHECK(due[0] == 500050000 && due[1] == INT64_C(60000000000));
  CHECK(timer_list_parse(text, due, 1, &now) == 1);
  CHECK(timer_list_parse("", due, 8, &now) == 0);

  /* A stranger's timer (3 s) does not take the place of a real one of the workload. */
  int64_t all[] = {INT64_C(3000000000), INT64_C(50000000000), INT64_C(9000000000)};
  struct sleeper sleepers[] = {{11, "long", INT64_C(60000000000)}, {12, "short", 10000000000}};
  struct user_timer timers[4];
  CHECK(timer_list_match(all, 3, sleepers, 2, timers, 4) == 2);
  CHECK(timers[0].pid == 12 && timers[0].due_in_ns == INT64_C(9000000000));
  CHECK(timers[1].pid == 11 && timers[1].due_in_ns == INT64_C(50000000000));

  /* Too many: the soonest stay. */
  int64_t three[] = {30, 10, 20};
  struct sleeper any[] = {{1, "a", TIMER_UNBOUNDED}, {2, "b", TIMER_UNBOUNDED}, {3, "c", 100}};
  CHECK(timer_list_match(three, 3, any, 3, timers, 2) == 2);
  CHECK(timers[0].due_in_ns == 10 && timers[1].due_in_ns == 20);
}

void unit_timer_lists(void) {
  test_timer_list();
}
