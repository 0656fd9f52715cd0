/*
 * Names that programs inside looked up, and the address that stands for each: the way out goes by name, and a
 * socket knows an address alone. Pure.
 *
 * Invariants:
 *  N1 A name has one address for as long as it is known, and an address never stands for another name before
 *     all of 198.18.0.0/15 was given out since: what a program remembers too long leads nowhere, not elsewhere.
 *  N2 At most NAMES_MAX are known; the one that was asked for longest ago is forgotten for a new one.
 */
#ifndef PERDURE_NAME_TABLE_H
#define PERDURE_NAME_TABLE_H

#include <stddef.h>
#include <stdint.h>

#define NAMES_MAX 4096u
#define NAME_BYTES_MAX 253u
#define NAMES_FIRST_ADDRESS 0xc6120000u /* 198.18.0.0, of which .0 and .1 are never given */
#define NAMES_ADDRESSES 0x20000u

struct known_name {
  char *name;
  uint32_t address;
  uint64_t asked; /* the count of lookups at its last one */
};

struct name_table {
  struct known_name names[NAMES_MAX];
  size_t count;
  uint32_t given;
  uint64_t lookups;
};

/* The address of a name in lower case, host byte order; 0 where there is no memory for it. */
uint32_t name_table_address(struct name_table *table, const char *name);
/* The name that an address stands for, or NULL. */
const char *name_table_name(const struct name_table *table, uint32_t address);
void name_table_close(struct name_table *table);

#endif
