/* The end: of the machine, or of a test. */
#ifndef PERDURE_SHUTDOWN_H
#define PERDURE_SHUTDOWN_H

/* Powers the machine off at once; what was not flushed is lost. */
_Noreturn void power_off(void);

#endif
