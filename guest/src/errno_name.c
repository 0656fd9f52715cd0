/* See errno_name.h. The errors that execve(2), chdir(2) and open(2) give. */
#include "errno_name.h"

#include <errno.h>
#include <stddef.h>

static const struct {
  int problem;
  const char *name;
} NAMES[] = {
    {E2BIG, "E2BIG"},     {EACCES, "EACCES"},   {EAGAIN, "EAGAIN"},
    {EFAULT, "EFAULT"},   {EINVAL, "EINVAL"},   {EIO, "EIO"},
    {EISDIR, "EISDIR"},   {ELIBBAD, "ELIBBAD"}, {ELOOP, "ELOOP"},
    {EMFILE, "EMFILE"},   {ENFILE, "ENFILE"},   {ENAMETOOLONG, "ENAMETOOLONG"},
    {ENOENT, "ENOENT"},   {ENOEXEC, "ENOEXEC"}, {ENOMEM, "ENOMEM"},
    {ENOSPC, "ENOSPC"},   {ENOTDIR, "ENOTDIR"}, {EPERM, "EPERM"},
    {ETXTBSY, "ETXTBSY"},
};

const char *errno_name(int problem) {
  for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
    if (NAMES[i].problem == problem) return NAMES[i].name;
  }
  return "EIO";
}
