/**
 * Frames: encoder, and an incremental parser for whatever the guest sends.
 *
 * The parser keeps at most one frame, copies a byte at most once, and hands out payloads that are
 * valid only during the call. It never looks at what a payload means.
 */
import { violation } from "./violation.ts";

export const frameType = {
  request: 1,
  response: 2,
  data: 3,
  end: 4,
  window: 5,
  cancel: 6,
  event: 7,
} as const;
export type FrameType = (typeof frameType)[keyof typeof frameType];

export const FRAME_PAYLOAD_BYTES_MAX = 65_536;
export const FRAME_HEADER_BYTES = 12;
/** What the length field counts beside the payload. */
const COUNTED_HEADER_BYTES = 8;

const EMPTY = new Uint8Array(0);

/** One frame, of which `parts` are the payload, one after another. */
export function encodeFrame(
  type: FrameType,
  stream: number,
  ...parts: readonly Uint8Array[]
): Uint8Array {
  let bytes = 0;
  for (const part of parts) bytes += part.length;
  if (bytes > FRAME_PAYLOAD_BYTES_MAX) throw new RangeError(`A frame cannot hold ${bytes} bytes`);
  const frame = new Uint8Array(FRAME_HEADER_BYTES + bytes);
  const view = new DataView(frame.buffer);
  view.setUint32(0, COUNTED_HEADER_BYTES + bytes, true);
  view.setUint8(4, type);
  view.setUint32(8, stream, true);
  let at = FRAME_HEADER_BYTES;
  for (const part of parts) {
    frame.set(part, at);
    at += part.length;
  }
  return frame;
}

export function u16(value: number): Uint8Array {
  return Uint8Array.of(value & 255, value >>> 8);
}

export function u32(value: number): Uint8Array {
  return Uint8Array.of(value & 255, (value >>> 8) & 255, (value >>> 16) & 255, value >>> 24);
}

/** `payload` may be a view of a buffer that is used again: copy what is kept. */
export type FrameSink = (type: FrameType, stream: number, payload: Uint8Array) => void;

export class FrameParser {
  readonly #sink: FrameSink;
  /** A frame of which only the first `#heldBytes` have arrived. */
  #held: Uint8Array = EMPTY;
  #heldBytes = 0;

  constructor(sink: FrameSink) {
    this.#sink = sink;
  }

  /** Takes the next bytes, cut anywhere. @throws `guest_protocol_violation`, and what the sink throws */
  push(chunk: Uint8Array): void {
    let at = this.#heldBytes === 0 ? 0 : this.#complete(chunk);
    while (chunk.length - at >= FRAME_HEADER_BYTES) {
      const bytes = frameBytes(chunk, at);
      if (chunk.length - at < bytes) break;
      this.#emit(chunk, at, bytes);
      at += bytes;
    }
    if (at < chunk.length) this.#hold(chunk, at, chunk.length);
  }

  /** Fills up the held frame from the start of `chunk`; answers how many bytes it took. */
  #complete(chunk: Uint8Array): number {
    let at = 0;
    if (this.#heldBytes < FRAME_HEADER_BYTES) {
      at = Math.min(FRAME_HEADER_BYTES - this.#heldBytes, chunk.length);
      this.#hold(chunk, 0, at);
      if (this.#heldBytes < FRAME_HEADER_BYTES) return at;
    }
    const bytes = frameBytes(this.#held, 0);
    const end = Math.min(at + bytes - this.#heldBytes, chunk.length);
    this.#hold(chunk, at, end);
    if (this.#heldBytes < bytes) return end;
    this.#heldBytes = 0;
    this.#emit(this.#held, 0, bytes);
    return end;
  }

  #hold(chunk: Uint8Array, from: number, to: number): void {
    if (this.#held.length === 0) {
      this.#held = new Uint8Array(FRAME_HEADER_BYTES + FRAME_PAYLOAD_BYTES_MAX);
    }
    this.#held.set(chunk.subarray(from, to), this.#heldBytes);
    this.#heldBytes += to - from;
  }

  #emit(source: Uint8Array, at: number, bytes: number): void {
    const stream = read32(source, at + 8);
    const payload =
      bytes === FRAME_HEADER_BYTES ? EMPTY : source.subarray(at + FRAME_HEADER_BYTES, at + bytes);
    this.#sink((source[at + 4] ?? 0) as FrameType, stream, payload);
  }
}

/** Length of the whole frame whose header stands at `at`, checked. */
function frameBytes(source: Uint8Array, at: number): number {
  const counted = read32(source, at);
  if (counted < COUNTED_HEADER_BYTES) throw violation(`a frame's length is ${counted}`);
  if (counted > COUNTED_HEADER_BYTES + FRAME_PAYLOAD_BYTES_MAX) {
    throw violation(`a frame's length is ${counted}, above the limit`);
  }
  const type = source[at + 4] ?? 0;
  if (type < frameType.request || type > frameType.event) throw violation(`frame type ${type}`);
  if (source[at + 5] !== 0 || source[at + 6] !== 0 || source[at + 7] !== 0) {
    throw violation("a reserved part of a frame's header is not zero");
  }
  return counted + FRAME_HEADER_BYTES - COUNTED_HEADER_BYTES;
}

function read32(source: Uint8Array, at: number): number {
  return (
    ((source[at] ?? 0) |
      ((source[at + 1] ?? 0) << 8) |
      ((source[at + 2] ?? 0) << 16) |
      ((source[at + 3] ?? 0) << 24)) >>>
    0
  );
}
