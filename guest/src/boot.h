/* From the kernel's first jump into /init to a machine that can serve the link. Blocks. */
#ifndef PERDURE_BOOT_H
#define PERDURE_BOOT_H

/* The descriptor of the port. Where anything essential fails, says so and powers off. */
int boot(void);

/* The reason on the console, then power off: the host sees both. */
_Noreturn void boot_failed(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
