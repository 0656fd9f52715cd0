/*
 * Bytes waiting to be written to a pipe: first in, first out, with a fixed capacity. The capacity
 * is the credit granted, so a sender that keeps to its credit always finds room.
 */
#ifndef PERDURE_BYTE_QUEUE_H
#define PERDURE_BYTE_QUEUE_H

#include <stdbool.h>

#include "field.h"

struct byte_queue {
  uint8_t *buffer;
  size_t capacity;
  size_t start;
  size_t length;
};

bool byte_queue_open(struct byte_queue *queue, size_t capacity);
void byte_queue_close(struct byte_queue *queue);
/* False, and nothing taken, where it does not fit. */
bool byte_queue_put(struct byte_queue *queue, struct bytes bytes);
/* The longest run that can be written in one piece. */
struct bytes byte_queue_front(const struct byte_queue *queue);
void byte_queue_drop(struct byte_queue *queue, size_t length);

#endif
