/* See attribute.h. */
#include "attribute.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>

#define PREFIX "user."
#define PREFIX_BYTES (sizeof PREFIX - 1)
#define NAME_BYTES_MAX 255u
#define NAMES_BYTES_MAX (8u << 10)

void attributes_put(struct field_writer *fields, int fd, const char *name) {
  static char path[64 + PATH_BYTES_MAX];
  static char names[NAMES_BYTES_MAX];
  static char value[ATTRIBUTES_BYTES_MAX];
  /* A descriptor that only names a file has no attributes of its own to ask for. */
  snprintf(path, sizeof path, "/proc/self/fd/%d%s%s", fd, name == NULL ? "" : "/",
           name == NULL ? "" : name);
  ssize_t length = name == NULL ? listxattr(path, names, sizeof names)
                                : llistxattr(path, names, sizeof names);
  size_t left = ATTRIBUTES_BYTES_MAX; /* length is negative where this file system has none */
  for (const char *at = names; at - names < length; at += strlen(at) + 1) {
    if (strncmp(at, PREFIX, PREFIX_BYTES) != 0) continue;
    ssize_t size = name == NULL ? getxattr(path, at, value, sizeof value)
                                : lgetxattr(path, at, value, sizeof value);
    size_t name_bytes = strlen(at) - PREFIX_BYTES;
    size_t needed = 3 * FIELD_HEADER + name_bytes + (size_t)size;
    if (size < 0 || name_bytes == 0 || needed > left) continue;
    left -= needed;
    size_t opened = field_open(fields, TAG_ATTRIBUTE);
    field_put_bytes(fields, TAG_NAME, at + PREFIX_BYTES, name_bytes);
    field_put_bytes(fields, TAG_BYTES, value, (size_t)size);
    field_close(fields, opened);
  }
}

bool attributes_set(int fd, const struct request *request) {
  struct field_reader list = request_list(request);
  struct bytes nested;
  while (request_each(&list, TAG_ATTRIBUTE, &nested)) {
    struct request attribute;
    const char *why;
    char name[NAME_BYTES_MAX + 1] = PREFIX;
    errno = EINVAL;
    if (request_decode_fields(nested, &attribute, &why) != STATUS_OK) return false;
    if (!request_has(&attribute, TAG_NAME) || attribute.slice[TAG_NAME].length == 0) return false;
    if (!bytes_to_string(attribute.slice[TAG_NAME], name + PREFIX_BYTES, sizeof name - PREFIX_BYTES)) {
      return false;
    }
    struct bytes value = attribute.slice[TAG_BYTES];
    if (!request_has(&attribute, TAG_BYTES)) value = (struct bytes){0};
    if (fsetxattr(fd, name, value.at, value.length, 0) != 0) return false;
  }
  return true;
}
