/**
 * One epoch: the streams that are open, and what each frame of the guest means to them.
 *
 * I4, the host's side of the boundary: until the agent is let out nothing is taken from the guest but
 * answers to outstanding control requests. The rest is dropped and counted.
 *
 * A guest may finish sending what was under way when the host ended a stream. How much that can be is
 * known when it ends; all such frames are paid from one allowance, so nothing is remembered per stream.
 */
import { PerdureError } from "@perdure/protocol";
import { Fields } from "./field.ts";
import { encodeFrame, FRAME_HEADER_BYTES, frameType, u16, type FrameType } from "./frame.ts";
import { eventKind, tag, type Operation } from "./operation.ts";
import { isSendable } from "./resync.ts";
import { Stream, type StreamEvents } from "./stream.ts";
import { REQUEST_QUEUE_BYTES_MAX, type Transport } from "./transport.ts";
import { violation } from "./violation.ts";

/** The guest has room for 256 streams; the difference is kept for control operations. */
export const USER_STREAMS_MAX = 224;
export const CONTROL_STREAMS_MAX = 32;
export const REQUEST_BYTES_MAX = 65_536;
/** Bytes of frames dropped before the agent is let out; a guest that sends more is cut off. */
export const DROPPED_BYTES_MAX = 128 * 1024 * 1024;
/** Events that the guest may send beside one for each process that was started in the epoch. */
export const EVENTS_MAX = 1024;
/** Below this no id, with the bytes that follow it, looks like the start of RESYNC's magic. */
const STREAM_ID_MAX = 2 ** 30;

export class Epoch {
  /** Of the protocol, as the guest chose it. Guest agents in old checkpoints choose an old one. */
  version = 1;
  readonly #transport: Transport;
  readonly #streams = new Map<number, Stream>();
  #lastId = 0;
  #userStreams = 0;
  #letOut = false;
  #closeCause: PerdureError | undefined;
  #staleBytes = 0;
  #droppedBytes = 0;
  #droppedFrames = 0;
  #eventsAllowed = EVENTS_MAX;
  /** Frames of users that are kept back; null: they are sent. */
  #held: Uint8Array[] | null = null;
  #released: PromiseWithResolvers<undefined> | null = null;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  get droppedFrames(): number {
    return this.#droppedFrames;
  }

  get letOut(): boolean {
    return this.#letOut;
  }

  allowUsers(): void {
    this.#letOut = true;
  }

  /**
   * Sends a request and opens its stream.
   *
   * @param action what is asked for, as it reads after "Cannot"
   * @throws why it cannot be sent; nothing was sent then
   */
  open(
    op: Operation,
    fields: Uint8Array,
    options: { readonly control: boolean; readonly action: string },
    events: StreamEvents,
  ): Stream {
    const { control, action } = options;
    if (this.#closeCause !== undefined) throw this.#closeCause;
    if (!control && !this.#letOut) {
      throw new PerdureError("agent_state", `Cannot ${action}: the agent has not been let out`);
    }
    const bytes = fields.length + 2;
    if (bytes > REQUEST_BYTES_MAX) {
      throw new PerdureError(
        "too_large",
        `Cannot ${action}: the request takes ${bytes} bytes, at most ${REQUEST_BYTES_MAX} fit`,
        {
          hint: "Write what is long into a file inside, and name that",
          details: { requestBytes: bytes, requestBytesMax: REQUEST_BYTES_MAX },
        },
      );
    }
    if (!isSendable(fields)) {
      throw new PerdureError(
        "bad_request",
        `Cannot ${action}: the request holds a byte sequence that the link reserves`,
      );
    }
    const controlStreams = this.#streams.size - this.#userStreams;
    if (control ? controlStreams >= CONTROL_STREAMS_MAX : this.#userStreams >= USER_STREAMS_MAX) {
      throw new PerdureError("too_many", `Cannot ${action}: too many calls into this VM are open`);
    }
    if (this.#transport.queuedBytes > REQUEST_QUEUE_BYTES_MAX) {
      throw new PerdureError("guest_timeout", `Cannot ${action}: the guest does not read the link`);
    }
    if (this.#lastId >= STREAM_ID_MAX) {
      throw new PerdureError("guest_unreachable", `Cannot ${action}: this epoch has no ids left`, {
        hint: "Connect again: that begins a new epoch.",
      });
    }
    const stream = new Stream(this, ++this.#lastId, control, events);
    this.#streams.set(stream.id, stream);
    if (!control) this.#userStreams++;
    this.send(encodeFrame(frameType.request, stream.id, u16(op), fields), control);
    return stream;
  }

  /** A process was started: one more event is due. */
  expectEvent(): void {
    this.#eventsAllowed++;
  }

  send(frame: Uint8Array, control: boolean): void {
    if (this.#closeCause !== undefined) return;
    if (this.#held === null || control) this.#transport.send(frame);
    else this.#held.push(frame);
  }

  /** Resolves when bulk data may be sent, or the link is closed. */
  async drained(): Promise<void> {
    await this.#released?.promise;
    await this.#transport.drained();
  }

  /** Keeps back frames of users; few come, as senders of bulk data wait. */
  hold(): void {
    this.#held ??= [];
    this.#released ??= Promise.withResolvers();
  }

  release(): void {
    const held = this.#held ?? [];
    this.#held = null;
    for (const frame of held) this.send(frame, false);
    this.#released?.resolve(undefined);
    this.#released = null;
  }

  forget(stream: Stream, staleBytes: number): void {
    if (!this.#streams.delete(stream.id)) return;
    if (!stream.control) this.#userStreams--;
    this.#staleBytes += staleBytes;
  }

  /** Ends every stream; later calls fail with `cause`. */
  close(cause: PerdureError): void {
    if (this.#closeCause !== undefined) return;
    this.#closeCause = cause;
    this.release();
    const open = [...this.#streams.values()];
    this.#streams.clear();
    for (const stream of open) stream.onClosed(cause);
  }

  /** One frame of the guest. @throws `guest_protocol_violation` */
  receive(type: FrameType, id: number, payload: Uint8Array): void {
    if (this.#closeCause !== undefined) return;
    const stream = this.#streams.get(id);
    if (!this.#letOut && !(type === frameType.response && stream?.control === true)) {
      this.#drop(payload);
      return;
    }
    if (type === frameType.event && id === 0) this.#event(payload);
    else if (type === frameType.request || type === frameType.cancel || type === frameType.event) {
      throw violation(`frame type ${type} is not for the host`);
    } else if (stream === undefined) this.#stale(type, id, payload);
    else deliver(type, stream, payload);
  }

  #drop(payload: Uint8Array): void {
    this.#droppedFrames++;
    this.#droppedBytes += FRAME_HEADER_BYTES + payload.length;
    if (this.#droppedBytes > DROPPED_BYTES_MAX) throw violation("a flood before it was let out");
  }

  #stale(type: FrameType, id: number, payload: Uint8Array): void {
    if (id === 0 || id > this.#lastId) throw violation(`a frame for stream ${id}, never opened`);
    const cost = type === frameType.window ? windowBytes(payload) : payload.length;
    this.#staleBytes -= cost;
    if (this.#staleBytes < 0 || cost === 0) {
      throw violation(`a frame for stream ${id}, which is over`);
    }
  }

  #event(payload: Uint8Array): void {
    if (this.#eventsAllowed-- <= 0) throw violation("more events than there were processes");
    const [kind, fields] = coded(payload);
    if (kind === eventKind.processEnded) fields.number(tag.process);
  }
}

function deliver(
  type:
    | typeof frameType.response
    | typeof frameType.data
    | typeof frameType.end
    | typeof frameType.window,
  stream: Stream,
  payload: Uint8Array,
): void {
  switch (type) {
    case frameType.response:
      stream.onResponse(...coded(payload));
      break;
    case frameType.data:
      stream.onData(payload);
      break;
    case frameType.end:
      stream.onEnd(...coded(payload));
      break;
    case frameType.window:
      stream.onWindow(windowBytes(payload));
      break;
  }
}

/** A `u16` and fields, copied out of the parser's buffer. */
function coded(payload: Uint8Array): [code: number, fields: Fields] {
  if (payload.length < 2) throw violation("a frame without its code");
  const copy = payload.slice();
  return [(copy[0] ?? 0) | ((copy[1] ?? 0) << 8), Fields.parse(copy.subarray(2))];
}

function windowBytes(payload: Uint8Array): number {
  if (payload.length !== 4) throw violation(`a WINDOW of ${payload.length} bytes`);
  return new DataView(payload.buffer, payload.byteOffset, 4).getUint32(0, true);
}
