/* See figure.h. */
#include "figure.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol.h"

#define SECTOR_BYTES 512u

void figure_put(struct field_writer *fields, const char *name, uint64_t value) {
  size_t opened = field_open(fields, TAG_STAT);
  field_put_string(fields, TAG_NAME, name);
  field_put_number(fields, TAG_VALUE, value);
  field_close(fields, opened);
}

uint64_t figure_after(const char *text, const char *key) {
  size_t length = strlen(key);
  for (const char *line = text; line != NULL && *line != '\0';) {
    if (strncmp(line, key, length) == 0) return strtoull(line + length, NULL, 10);
    line = strchr(line, '\n');
    if (line != NULL) line++;
  }
  return 0;
}

uint64_t figure_disk_written(const char *text) {
  uint64_t sectors = 0;
  /* reads, merges, sectors, ms; writes, merges, sectors */
  sscanf(text, "%*u %*u %*u %*u %*u %*u %" SCNu64, &sectors);
  return sectors * SECTOR_BYTES;
}
