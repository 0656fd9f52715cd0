/*
 * STAT, READ_FILE and WRITE_FILE, the loop's side: bytes between streams and the children that do
 * the work (file_child.c; for READ_FILE by outflow.c).
 *
 * Invariants:
 *  W1 A file is written whole or not at all. The child renames only after it has every byte and the
 *     commit byte, which is sent for the host's END and for nothing else: a pipe that merely closes
 *     (CANCEL, end of the epoch, the agent's end) leaves the target untouched.
 *  W2 What waits for a child is bounded by the credit granted, and credit is granted only for room.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "activity.h"
#include "byte_queue.h"
#include "file_child.h"
#include "job.h"
#include "operation.h"
#include "outflow.h"
#include "path.h"
#include "stream.h"

#define WINDOW_BYTES (256u << 10)
#define WINDOW_BYTES_MANY (32u << 10) /* while many files are written at once */
#define MANY 16u

struct transfer {
  struct job *job;
  struct stream *stream;
  struct source pipe; /* bytes of the file, to the child */
  bool answered;
  struct byte_queue queue;
  uint64_t size;
  uint64_t taken;
  bool committed;
};

static unsigned writer_count;

static const char *check_path(const struct request *request) {
  if (!request_has(request, TAG_PATH)) return "path is missing";
  return path_check(request->slice[TAG_PATH]);
}

void operation_stat(uint32_t id, const struct request *request) {
  const char *problem = check_path(request);
  if (problem != NULL) {
    answer_status(id, STATUS_BAD_REQUEST, problem);
    return;
  }
  struct job_plan plan = {.work = file_child_stat,
                          .deadline_ms = request_number(request, TAG_DEADLINE_MS, 0)};
  job_run(id, request, &plan);
}

static void free_transfer(struct transfer *transfer) {
  source_close(&transfer->pipe);
  if (transfer->queue.buffer != NULL) writer_count--;
  byte_queue_close(&transfer->queue);
  free(transfer);
}

/* Forks the child with one more pipe. In the child never returns. */
static struct transfer *open_transfer(struct stream *stream, const struct request *request) {
  struct transfer *transfer = calloc(1, sizeof *transfer);
  int ends[2];
  if (transfer == NULL || pipe2(ends, O_CLOEXEC) != 0) {
    free(transfer);
    return NULL;
  }
  struct answer_pipe answers;
  if (job_fork(&transfer->job, &answers, &ends[0], 1)) {
    file_child_write(request, &answers, ends[0]);
    _exit(0);
  }
  close(ends[0]);
  if (transfer->job == NULL) {
    close(ends[1]);
    free(transfer);
    return NULL;
  }
  fcntl(ends[1], F_SETFL, O_NONBLOCK);
  source_open(&transfer->pipe, ends[1], NULL);
  transfer->stream = stream;
  transfer->job->owner = transfer;
  stream->owner = transfer;
  return transfer;
}

void operation_read_file(uint32_t id, const struct request *request) {
  const char *problem = check_path(request);
  if (problem != NULL) {
    answer_status(id, STATUS_BAD_REQUEST, problem);
  } else {
    outflow_run(id, request, file_child_read);
  }
}

/* WRITE_FILE. */

static void grant_room(struct transfer *transfer) {
  if (transfer->stream->host_ended) return;
  size_t window = transfer->queue.capacity - 1;
  size_t room = window - transfer->queue.length - (size_t)transfer->stream->receive_credit;
  if (room >= window / 4) stream_grant(transfer->stream, room);
}

static void write_on(struct transfer *transfer);

/* W1: after this the child may rename. The queue has one byte of room that is never granted. */
static void commit(struct transfer *transfer) {
  static const uint8_t byte[] = {FILE_CHILD_COMMIT};
  transfer->committed = byte_queue_put(&transfer->queue, (struct bytes){byte, 1});
  write_on(transfer);
}

/* A record of the child: either it is ready for bytes, or this is the outcome. */
static void write_record(struct job *job, struct bytes payload) {
  struct transfer *transfer = job->owner;
  if (!transfer->answered && wire_get_u16(payload.at) == STATUS_OK) {
    transfer->answered = true;
    size_t window = writer_count < MANY ? WINDOW_BYTES : WINDOW_BYTES_MANY;
    if (byte_queue_open(&transfer->queue, window + 1)) {
      writer_count++;
      grant_room(transfer);
      if (transfer->stream->host_ended) commit(transfer); /* an empty file */
      return;
    }
    struct stream *stream = transfer->stream;
    job_forget(job);
    free_transfer(transfer);
    stream_answer(stream, STATUS_TOO_MANY, "No memory");
    return;
  }
  uint32_t id = transfer->stream->id;
  job_forget(job);
  stream_close(transfer->stream);
  free_transfer(transfer);
  if (wire_get_u16(payload.at) == STATUS_OK) activity_note_file_write();
  answer_send_payload(FRAME_RESPONSE, id, payload);
}

static void write_child_gone(struct job *job) {
  struct transfer *transfer = job->owner;
  struct stream *stream = transfer->stream;
  free_transfer(transfer);
  stream_answer(stream, STATUS_INTERNAL, "The work ended without a result");
}

/* Gives up: the pipe closes without a commit byte, the child takes its draft away (W1). */
static void abandon(struct transfer *transfer) {
  job_forget(transfer->job);
  free_transfer(transfer);
}

static void write_on(struct transfer *transfer) {
  while (transfer->queue.length > 0) {
    struct bytes front = byte_queue_front(&transfer->queue);
    ssize_t put = write(transfer->pipe.fd, front.at, front.length);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EAGAIN) {
      source_watch(&transfer->pipe, EPOLLOUT);
      grant_room(transfer);
      return;
    }
    if (put <= 0) { /* the child failed; its record says why */
      source_close(&transfer->pipe);
      byte_queue_drop(&transfer->queue, transfer->queue.length);
      return;
    }
    byte_queue_drop(&transfer->queue, (size_t)put);
  }
  if (transfer->committed) {
    source_close(&transfer->pipe);
  } else {
    source_watch(&transfer->pipe, 0);
    grant_room(transfer);
  }
}

static void write_pipe_ready(struct source *source, uint32_t events) {
  struct transfer *transfer = CONTAINER_OF(source, struct transfer, pipe);
  if ((events & EPOLLERR) != 0) {
    source_close(&transfer->pipe);
  } else {
    write_on(transfer);
  }
}

static void write_data(struct stream *stream, struct bytes bytes) {
  struct transfer *transfer = stream->owner;
  transfer->taken += bytes.length;
  if (transfer->taken > transfer->size) {
    abandon(transfer);
    stream_answer(stream, STATUS_SIZE_MISMATCH, "More bytes came than the size says");
    return;
  }
  if (transfer->pipe.fd < 0) return; /* the child failed; its record is on the way */
  byte_queue_put(&transfer->queue, bytes);
  write_on(transfer);
}

static void write_end(struct stream *stream) {
  struct transfer *transfer = stream->owner;
  if (transfer->taken != transfer->size) {
    abandon(transfer);
    stream_answer(stream, STATUS_SIZE_MISMATCH, "Fewer bytes came than the size says");
    return;
  }
  if (transfer->pipe.fd >= 0 && transfer->queue.buffer != NULL) commit(transfer);
}

static void write_closed(struct stream *stream) { abandon(stream->owner); }

static const struct stream_handler WRITER = {
    .data = write_data, .end = write_end, .close = write_closed};

void operation_write_file(uint32_t id, const struct request *request) {
  const char *problem = check_path(request);
  if (problem == NULL && !request_has(request, TAG_SIZE)) problem = "size is missing";
  if (problem != NULL) {
    answer_status(id, STATUS_BAD_REQUEST, problem);
    return;
  }
  struct stream *stream = stream_open(id, OP_WRITE_FILE, &WRITER, NULL);
  if (stream == NULL) return;
  struct transfer *transfer = open_transfer(stream, request);
  if (transfer == NULL) {
    stream_answer(stream, STATUS_TOO_MANY, "Cannot start another child");
    return;
  }
  transfer->size = request->number[TAG_SIZE];
  transfer->pipe.ready = write_pipe_ready;
  transfer->job->on_record = write_record;
  transfer->job->on_end = write_child_gone;
  if (!source_watch(&transfer->pipe, 0)) {
    abandon(transfer);
    stream_answer(stream, STATUS_INTERNAL, "Cannot watch a pipe");
  }
}
