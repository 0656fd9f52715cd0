/* Names for files that are not finished yet; `.perdure-` and 16 hexadecimal digits. */
#ifndef PERDURE_RANDOM_NAME_H
#define PERDURE_RANDOM_NAME_H

#include <stdbool.h>

#define RANDOM_NAME_BYTES 32

void random_name(char *name);
/* Whether this is such a name. */
bool random_name_is(const char *name);

#endif
