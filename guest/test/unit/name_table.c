/* Names and the addresses that stand for them. */
#include "../../src/name_table.h"

#include <stdio.h>
#include <string.h>

#include "../check.h"
#include "unit.h"

static struct name_table table;

static void test_names(void) {
  uint32_t one = name_table_address(&table, "one.example");
  uint32_t two = name_table_address(&table, "two.example");
  CHECK(one == NAMES_FIRST_ADDRESS + 2 && two == one + 1);
  CHECK(name_table_address(&table, "one.example") == one);
  CHECK(strcmp(name_table_name(&table, two), "two.example") == 0);
  CHECK(name_table_name(&table, two + 1) == NULL && name_table_name(&table, 0) == NULL);
  name_table_close(&table);
  CHECK(name_table_name(&table, one) == NULL);
}

/* A whole round: the one that is asked for stays, the others come and go, and no address is of two. */
static void test_round(void) {
  char name[32];
  uint32_t kept = name_table_address(&table, "kept");
  uint32_t first = name_table_address(&table, "n0");
  unsigned again = 0;
  table.given = NAMES_ADDRESSES - 5000; /* as if most of a round were over */
  for (unsigned i = 1; i < 10000; i++) {
    snprintf(name, sizeof name, "n%u", i);
    uint32_t address = name_table_address(&table, name);
    if (address == first && again == 0) again = i;
    CHECK(address != kept && address > NAMES_FIRST_ADDRESS + 1);
    CHECK(address < NAMES_FIRST_ADDRESS + NAMES_ADDRESSES);
    if (i % 1000 == 0) CHECK(name_table_address(&table, "kept") == kept);
    if (i == NAMES_MAX + 1) CHECK(name_table_name(&table, first) == NULL);
  }
  CHECK(again > 4990 && again < 5000);
  CHECK(table.count == NAMES_MAX && strcmp(name_table_name(&table, kept), "kept") == 0);
  name_table_close(&table);
}

void unit_name_tables(void) {
  test_names();
  test_round();
}
