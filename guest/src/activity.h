/*
 * ACTIVITY: whether anything goes on inside. It is asked every few seconds of agents that are awake, so it
 * forks nothing and opens nothing.
 */
#ifndef PERDURE_ACTIVITY_H
#define PERDURE_ACTIVITY_H

#define DISK_STAT "/sys/block/vda/stat"

/* A file was written, or a path changed, over the link. */
void activity_note_file_write(void);

#endif
