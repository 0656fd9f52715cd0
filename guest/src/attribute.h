/*
 * Attributes of a file that programs may set ("user." and a name): as nested fields, name without that and bytes.
 * For children.
 */
#ifndef PERDURE_ATTRIBUTE_H
#define PERDURE_ATTRIBUTE_H

#include <stdbool.h>

#include "field.h"
#include "request.h"

/*
 * At most ATTRIBUTES_BYTES_MAX, fields and all; what does not fit is left out, as is what the user may not read.
 * `name` NULL: of what `fd` is; else of that in the folder `fd`, not followed where it is a link.
 */
void attributes_put(struct field_writer *fields, int fd, const char *name);
/* Sets those of the request, on a file that has none. False, with errno, where one was refused. */
bool attributes_set(int fd, const struct request *request);

#endif
