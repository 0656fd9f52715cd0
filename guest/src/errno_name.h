/* The symbolic name of an error number ("ENOENT"), for messages that programs read. */
#ifndef PERDURE_ERRNO_NAME_H
#define PERDURE_ERRNO_NAME_H

const char *errno_name(int problem);

#endif
