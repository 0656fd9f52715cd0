/*
 * Operations: which function answers which number. Each takes a decoded request and sees to it that
 * one RESPONSE follows. They live with what they act on; this is the list of all.
 */
#ifndef PERDURE_OPERATION_H
#define PERDURE_OPERATION_H

#include <stdbool.h>

#include "field.h"
#include "request.h"

void operation_run(uint32_t stream, struct bytes payload);

/* clock.c */
/* Opens what ENTROPY writes to; once, before the loop. */
bool clock_open(void);
void operation_info(uint32_t stream, const struct request *request);
void operation_ping(uint32_t stream, const struct request *request);
void operation_clock_adjust(uint32_t stream, const struct request *request);
void operation_entropy(uint32_t stream, const struct request *request);
/* clock_source.c */
void operation_clock_source(uint32_t stream, const struct request *request);
/* memory.c */
/* Opens what DROP_CACHES writes to; once, before the loop. */
void memory_open(void);
void operation_flush(uint32_t stream, const struct request *request);
void operation_drop_caches(uint32_t stream, const struct request *request);
/* freezer.c */
void operation_freeze(uint32_t stream, const struct request *request);
void operation_thaw(uint32_t stream, const struct request *request);
/* frozen_waits.c */
void operation_frozen_waits(uint32_t stream, const struct request *request);
/* identity.c */
/* Opens what GENERATION writes to; once, before the loop. */
void identity_open(void);
/* Before a sleep: makes what the next GENERATION needs. */
void generation_make_ready(void);
void operation_generation(uint32_t stream, const struct request *request);
void operation_identity(uint32_t stream, const struct request *request);
/* hook.c */
void operation_hooks(uint32_t stream, const struct request *request);
/* exec.c */
void operation_exec(uint32_t stream, const struct request *request);
/* attach.c */
void operation_attach(uint32_t stream, const struct request *request);
void operation_stdin(uint32_t stream, const struct request *request);
/* terminal.c */
void operation_resize(uint32_t stream, const struct request *request);
/* process_list.c */
void operation_signal(uint32_t stream, const struct request *request);
void operation_processes(uint32_t stream, const struct request *request);
void operation_forget(uint32_t stream, const struct request *request);
/* file_op.c */
void operation_read_file(uint32_t stream, const struct request *request);
void operation_write_file(uint32_t stream, const struct request *request);
void operation_stat(uint32_t stream, const struct request *request);
/* path_op.c */
void operation_list_folder(uint32_t stream, const struct request *request);
void operation_make_folder(uint32_t stream, const struct request *request);
void operation_move_path(uint32_t stream, const struct request *request);
void operation_remove_path(uint32_t stream, const struct request *request);
void operation_watch(uint32_t stream, const struct request *request);
/* connect.c */
void operation_connect(uint32_t stream, const struct request *request);
/* outbound.c */
void operation_outbound(uint32_t stream, const struct request *request);
void operation_carry(uint32_t stream, const struct request *request);
/* stats.c, activity.c, timers.c */
/* Opens what STATS of memory reads; once, before the loop. */
void stats_open(void);
void operation_stats(uint32_t stream, const struct request *request);
/* Opens what ACTIVITY reads; once, after the cgroups. */
void activity_open(void);
void operation_activity(uint32_t stream, const struct request *request);
/* Opens the kernel's list of timers; once, before the loop. */
void timers_open(void);
void operation_timers(uint32_t stream, const struct request *request);
/* shutdown.c */
void operation_shutdown(uint32_t stream, const struct request *request);

#endif
