/* See name_table.h. */
#include "name_table.h"

#include <stdlib.h>
#include <string.h>

#define RESERVED 2u

static struct known_name *longest_unasked(struct name_table *table) {
  struct known_name *oldest = &table->names[0];
  for (size_t i = 1; i < table->count; i++) {
    if (table->names[i].asked < oldest->asked) oldest = &table->names[i];
  }
  return oldest;
}

static uint32_t next_address(struct name_table *table) {
  uint32_t number = RESERVED + table->given % (NAMES_ADDRESSES - RESERVED);
  table->given++;
  return NAMES_FIRST_ADDRESS + number;
}

/* One that is asked for again and again may outlive a whole round of the addresses. */
static uint32_t free_address(struct name_table *table) {
  uint32_t address = next_address(table);
  while (name_table_name(table, address) != NULL) address = next_address(table);
  return address;
}

uint32_t name_table_address(struct name_table *table, const char *name) {
  table->lookups++;
  for (size_t i = 0; i < table->count; i++) {
    if (strcmp(table->names[i].name, name) != 0) continue;
    table->names[i].asked = table->lookups;
    return table->names[i].address;
  }
  char *copy = strdup(name);
  if (copy == NULL) return 0;
  uint32_t address = free_address(table);
  struct known_name *known;
  if (table->count < NAMES_MAX) {
    known = &table->names[table->count++];
  } else {
    known = longest_unasked(table);
    free(known->name);
  }
  *known = (struct known_name){.name = copy, .address = address, .asked = table->lookups};
  return address;
}

const char *name_table_name(const struct name_table *table, uint32_t address) {
  for (size_t i = 0; i < table->count; i++) {
    if (table->names[i].address == address) return table->names[i].name;
  }
  return NULL;
}

void name_table_close(struct name_table *table) {
  for (size_t i = 0; i < table->count; i++) free(table->names[i].name);
  memset(table, 0, sizeof *table);
}
