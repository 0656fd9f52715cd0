/*
 * The byte stream from the host, cut into frames and resynchronisations. No I/O, no allocation:
 * bytes are pushed in, a sink is called. This is the part that meets anything a broken or hostile
 * host may send, so it is fuzzed (test/fuzz-frame.c).
 *
 * Invariants:
 *  F1 The RESYNC magic is found at any position and across pushes, whatever the parser is doing,
 *     even inside the body of another RESYNC that was cut short.
 *  F2 No byte of a magic that arrives whole is taken as part of a frame: bytes that match its
 *     beginning are held back until they turn out to be something else. A frame may well end in
 *     such bytes, so whoever pushes must call `frame_reader_release` when nothing follows for a
 *     moment.
 *  F3 Before the first RESYNC and after a violation the reader is lost: everything is dropped up to
 *     the next RESYNC.
 */
#ifndef PERDURE_FRAME_H
#define PERDURE_FRAME_H

#include <stdbool.h>
#include <stdint.h>

#include "field.h"
#include "protocol.h"

#define MAGIC_BYTES 16u
#define RESYNC_BYTES 48u
#define FRAME_HEADER 12u

struct resync {
  uint8_t nonce[16];
  uint32_t version;
  uint32_t epoch;
  uint64_t generation;
};

struct frame {
  uint8_t type;
  uint32_t stream;
  struct bytes payload; /* valid during the call only */
};

struct frame_sink {
  void (*resync)(void *context, const struct resync *resync);
  void (*frame)(void *context, const struct frame *frame);
  /* The header does not fit the protocol; the reader is lost already. */
  void (*violation)(void *context, const char *why);
  void *context;
};

struct frame_reader {
  unsigned matched; /* bytes of the magic that the newest bytes match */
  unsigned held;    /* of those, how many the parser has not seen */
  bool in_resync;
  unsigned body_length;
  uint8_t body[RESYNC_BYTES - MAGIC_BYTES];
  bool lost;
  size_t have;
  uint8_t buffer[FRAME_HEADER + PAYLOAD_MAX];
};

void frame_reader_open(struct frame_reader *reader);
void frame_reader_push(struct frame_reader *reader, struct bytes bytes,
                       const struct frame_sink *sink);
/* True where bytes are held back (F2). */
bool frame_reader_holds(const struct frame_reader *reader);
/* Gives held bytes to the parser; a magic that goes on after this is still found. */
void frame_reader_release(struct frame_reader *reader, const struct frame_sink *sink);
/* Drops everything up to the next RESYNC. May be called from the sink. */
void frame_reader_lose(struct frame_reader *reader);

void frame_put_header(uint8_t *at, uint8_t type, uint32_t stream, size_t payload_length);
/* The 48 bytes that answer a RESYNC. */
void synced_put(uint8_t *at, const struct resync *resync, uint32_t version);

#endif
