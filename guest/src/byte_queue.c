/* See byte_queue.h. */
#include "byte_queue.h"

#include <stdlib.h>
#include <string.h>

bool byte_queue_open(struct byte_queue *queue, size_t capacity) {
  queue->buffer = malloc(capacity);
  queue->capacity = queue->buffer != NULL ? capacity : 0;
  queue->start = 0;
  queue->length = 0;
  return queue->buffer != NULL;
}

void byte_queue_close(struct byte_queue *queue) {
  free(queue->buffer);
  queue->buffer = NULL;
  queue->capacity = 0;
  queue->start = 0;
  queue->length = 0;
}

bool byte_queue_put(struct byte_queue *queue, struct bytes bytes) {
  if (bytes.length > queue->capacity - queue->length) return false;
  if (bytes.length == 0) return true;
  size_t end = (queue->start + queue->length) % queue->capacity;
  size_t first = queue->capacity - end;
  if (first > bytes.length) first = bytes.length;
  memcpy(queue->buffer + end, bytes.at, first);
  if (first < bytes.length) memcpy(queue->buffer, bytes.at + first, bytes.length - first);
  queue->length += bytes.length;
  return true;
}

struct bytes byte_queue_front(const struct byte_queue *queue) {
  size_t run = queue->capacity - queue->start;
  if (run > queue->length) run = queue->length;
  struct bytes front = {run > 0 ? queue->buffer + queue->start : NULL, run};
  return front;
}

void byte_queue_drop(struct byte_queue *queue, size_t length) {
  queue->length -= length;
  queue->start = queue->length == 0 ? 0 : (queue->start + length) % queue->capacity;
}
