/* Figures for STATS and ACTIVITY: out of the kernel's texts, into fields. Pure. */
#ifndef PERDURE_FIGURE_H
#define PERDURE_FIGURE_H

#include <stdint.h>

#include "field.h"

void figure_put(struct field_writer *fields, const char *name, uint64_t value);
/* The number after `key` at the beginning of a line, 0 where there is none. */
uint64_t figure_after(const char *text, const char *key);
/* Bytes written, out of a block device's `stat`. */
uint64_t figure_disk_written(const char *text);

#endif
