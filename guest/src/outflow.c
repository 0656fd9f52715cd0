/* See outflow.h. */
#include "outflow.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "stream.h"

#define END_BYTES_MAX 512u

struct outflow {
  struct job *job;
  struct stream *stream;
  struct source pipe;
  bool readable; /* worth a try */
  bool answered;
  bool ended; /* the END record is here */
  uint8_t end[END_BYTES_MAX];
  size_t end_length;
};

static void free_outflow(struct outflow *outflow) {
  source_close(&outflow->pipe);
  free(outflow);
}

static void finish(struct outflow *outflow) {
  uint32_t id = outflow->stream->id;
  if (outflow->job != NULL) job_forget(outflow->job);
  stream_close(outflow->stream);
  answer_send_payload(FRAME_END, id, (struct bytes){outflow->end, outflow->end_length});
  free_outflow(outflow);
}

static void take_record(struct job *job, struct bytes payload) {
  struct outflow *outflow = job->owner;
  if (outflow->answered) {
    if (payload.length > sizeof outflow->end) payload.length = 2;
    outflow->end_length = payload.length;
    memcpy(outflow->end, payload.at, payload.length);
    outflow->ended = true;
    outflow->readable = true; /* the last bytes, or the end of the pipe */
    return;
  }
  outflow->answered = true;
  uint32_t id = outflow->stream->id;
  if (wire_get_u16(payload.at) != STATUS_OK) {
    job_forget(job);
    stream_close(outflow->stream);
    free_outflow(outflow);
  }
  answer_send_payload(FRAME_RESPONSE, id, payload);
}

static void child_gone(struct job *job) {
  struct outflow *outflow = job->owner;
  outflow->job = NULL; /* freed by the caller once it is reaped */
  if (!outflow->answered) {
    stream_answer(outflow->stream, STATUS_INTERNAL, "The work ended without a result");
    free_outflow(outflow);
    return;
  }
  if (!outflow->ended) {
    wire_put_u16(outflow->end, STATUS_INTERNAL);
    outflow->end_length = 2;
    outflow->ended = true;
  }
  outflow->readable = true;
}

static void pipe_ready(struct source *source, uint32_t events) {
  (void)events;
  CONTAINER_OF(source, struct outflow, pipe)->readable = true;
}

static size_t fill(struct stream *stream, uint8_t *payload, size_t room) {
  struct outflow *outflow = stream->owner;
  if (!outflow->answered || !outflow->readable) return 0;
  if (outflow->pipe.fd >= 0 && room > 0) {
    ssize_t got = read(outflow->pipe.fd, payload, room);
    if (got > 0) return (size_t)got;
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
      outflow->readable = errno == EINTR;
      return 0;
    }
    source_close(&outflow->pipe);
  }
  /* The END record follows the last byte into its pipe, so an empty pipe is now the end of it. */
  int left = 0;
  if (outflow->ended && outflow->pipe.fd >= 0 && ioctl(outflow->pipe.fd, FIONREAD, &left) == 0 &&
      left == 0) {
    source_close(&outflow->pipe);
  }
  if (outflow->pipe.fd < 0 && outflow->ended) finish(outflow);
  return 0;
}

static void closed(struct stream *stream) {
  struct outflow *outflow = stream->owner;
  if (outflow->job != NULL) job_kill(outflow->job);
  free_outflow(outflow);
}

static const struct stream_handler HANDLER = {.fill = fill, .close = closed};

/* Forks the child with one more pipe. In the child never returns. */
static struct outflow *open_outflow(struct stream *stream, const struct request *request,
                                    outflow_work work) {
  struct outflow *outflow = calloc(1, sizeof *outflow);
  int ends[2];
  if (outflow == NULL || pipe2(ends, O_CLOEXEC) != 0) {
    free(outflow);
    return NULL;
  }
  struct answer_pipe answers;
  if (job_fork(&outflow->job, &answers, &ends[1], 1)) {
    work(request, &answers, ends[1]);
    _exit(0);
  }
  close(ends[1]);
  if (outflow->job == NULL) {
    close(ends[0]);
    free(outflow);
    return NULL;
  }
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  source_open(&outflow->pipe, ends[0], pipe_ready);
  outflow->job->owner = outflow;
  outflow->job->on_record = take_record;
  outflow->job->on_end = child_gone;
  outflow->stream = stream;
  stream->owner = outflow;
  return outflow;
}

void outflow_run(uint32_t id, const struct request *request, outflow_work work) {
  struct stream *stream = stream_open(id, (enum operation)request->op, &HANDLER, NULL);
  if (stream == NULL) return;
  struct outflow *outflow = open_outflow(stream, request, work);
  if (outflow == NULL) {
    stream_answer(stream, STATUS_TOO_MANY, "Cannot start another child");
  } else if (!source_watch(&outflow->pipe, EPOLLIN | EPOLLET)) {
    closed(stream);
    stream_answer(stream, STATUS_INTERNAL, "Cannot watch a pipe");
  }
}
