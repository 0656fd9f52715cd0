/*
 * STDIN: one writer at a time. What was taken under credit belongs to the process and is written
 * even when the writer goes; only the host's END closes stdin. Of a terminal it types the end of the input
 * instead (T2), and nothing more is taken after it.
 */
#include <errno.h>
#include <unistd.h>

#include "attach.h"
#include "operation.h"
#include "process.h"
#include "stream.h"
#include "terminal.h"

#define INPUT_WINDOW (64u << 10)

static void end_writer(struct process *process, enum status status) {
  struct stream *writer = process->writer;
  if (writer == NULL) return;
  process->writer = NULL;
  uint32_t id = writer->id;
  stream_close(writer);
  answer_begin(status);
  answer_send(FRAME_END, id);
}

static void close_input(struct process *process, enum status status) {
  source_close(&process->input);
  byte_queue_close(&process->input_queue);
  end_writer(process, status);
}

/* Grants in quarters of the window, so that not every small write costs a frame. */
static void grant_room(struct process *process) {
  struct stream *writer = process->writer;
  if (writer == NULL || writer->host_ended) return;
  size_t promised = process->input_queue.length + (size_t)writer->receive_credit;
  size_t room = INPUT_WINDOW - promised;
  if (room >= INPUT_WINDOW / 4) stream_grant(writer, room);
}

/* False where there is nothing to type, or it was. */
static bool type_end(struct process *process) {
  uint8_t text[TERMINAL_END_MAX];
  if (!process->has_terminal || process->input_end_typed) return false;
  process->input_end_typed = true;
  size_t length = terminal_end_text(process->input.fd, process->last_typed, text);
  return length > 0 && byte_queue_put(&process->input_queue, (struct bytes){text, length});
}

static void write_queue(struct process *process);

static void write_input(struct process *process) {
  write_queue(process);
  bool is_drained = process->input.fd >= 0 && process->input_queue.length == 0;
  if (!is_drained || !process->input_ending) return;
  if (type_end(process)) {
    write_input(process);
  } else {
    close_input(process, STATUS_OK);
  }
}

static void write_queue(struct process *process) {
  while (process->input_queue.length > 0) {
    struct bytes front = byte_queue_front(&process->input_queue);
    ssize_t put = write(process->input.fd, front.at, front.length);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EAGAIN) {
      grant_room(process);
      source_watch(&process->input, EPOLLOUT);
      return;
    }
    if (put <= 0) {
      close_input(process, STATUS_STDIN_CLOSED);
      return;
    }
    process->last_typed = front.at[put - 1];
    byte_queue_drop(&process->input_queue, (size_t)put);
  }
  source_watch(&process->input, 0);
  grant_room(process);
}

void input_ready(struct source *source, uint32_t events) {
  struct process *process = CONTAINER_OF(source, struct process, input);
  if ((events & (EPOLLERR | EPOLLHUP)) != 0) {
    close_input(process, STATUS_STDIN_CLOSED);
  } else {
    write_input(process);
  }
}

static void writer_data(struct stream *stream, struct bytes bytes) {
  struct process *process = stream->owner;
  byte_queue_put(&process->input_queue, bytes); /* fits: the credit is the room */
  write_input(process);
}

static void writer_end(struct stream *stream) {
  struct process *process = stream->owner;
  process->input_ending = true;
  write_input(process);
}

static void writer_closed(struct stream *stream) {
  struct process *process = stream->owner;
  process->writer = NULL;
}

static const struct stream_handler WRITER = {
    .data = writer_data, .end = writer_end, .close = writer_closed};

void operation_stdin(uint32_t id, const struct request *request) {
  struct process *process = process_find(request_number(request, TAG_PROCESS, 0));
  if (process == NULL) {
    answer_status(id, STATUS_PROCESS_NOT_FOUND, "There is no such process");
  } else if (process->phase == PROCESS_ENDED) {
    answer_status(id, STATUS_PROCESS_ENDED, "The process has ended");
  } else if (process->input.fd < 0 || process->input_ending) {
    answer_status(id, STATUS_STDIN_CLOSED, "The stdin of the process is closed");
  } else if (process->writer != NULL) {
    answer_status(id, STATUS_BAD_REQUEST, "Another stream writes to this stdin");
  } else if (process->input_queue.buffer == NULL &&
             !byte_queue_open(&process->input_queue, INPUT_WINDOW)) {
    answer_status(id, STATUS_INTERNAL, "No memory");
  } else {
    struct stream *stream = stream_open(id, OP_STDIN, &WRITER, process);
    if (stream == NULL) return;
    process->writer = stream;
    answer_status(id, STATUS_OK, NULL);
    grant_room(process);
  }
}
