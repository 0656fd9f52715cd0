/* The unit tests, a file for each module: everything pure is tested here. */
#ifndef PERDURE_UNIT_H
#define PERDURE_UNIT_H

#include "../../src/field.h"

#define TEXT(literal) ((struct bytes){(const uint8_t *)(literal), sizeof(literal) - 1})

void unit_fields(void);
void unit_frames(void);
void unit_requests(void);
void unit_byte_queue(void);
void unit_output_logs(void);
void unit_paths(void);
void unit_users(void);
void unit_timer_lists(void);
void unit_watch_trees(void);
void unit_known_timers(void);
void unit_figures(void);
void unit_random_names(void);
void unit_text_files(void);
void unit_frozen_waits(void);
void unit_name_tables(void);
void unit_dns(void);

#endif
