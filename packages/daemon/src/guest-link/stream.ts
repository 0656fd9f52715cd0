/**
 * One stream of an epoch, as the host sees it: its credit in both directions and what may still come.
 *
 * Rules kept here for a hostile guest: one RESPONSE, first (WINDOW alone may come before it); DATA only
 * after it, never empty, never beyond the credit granted; one END, last (of a `duplex` stream the end of its
 * own direction, and one more that is not ok may follow); WINDOW never zero and never
 * more than 1 MiB ahead. Breaking one throws `guest_protocol_violation`.
 */
import { PerdureError } from "@perdure/protocol";
import type { Fields } from "./field.ts";
import { encodeFrame, FRAME_PAYLOAD_BYTES_MAX, frameType, u16, u32 } from "./frame.ts";
import { splitPoints } from "./resync.ts";
import { violation } from "./violation.ts";

/** Credit that a receiver may grant ahead. */
export const CREDIT_BYTES_MAX = 1024 * 1024;

/** What an operation makes of its stream. A kind of frame without a handler is a violation. */
export interface StreamEvents {
  /** An answer other than ok ends the stream, as does any answer to an operation without `end`. */
  response(status: number, fields: Fields): void;
  /** `payload` is valid only during the call. */
  data?(payload: Uint8Array): void;
  end?(status: number, fields: Fields): void;
  /** Data goes both ways: an END with ok leaves the host's direction as it is. */
  readonly duplex?: true;
  /** Credit to send has come. */
  window?(): void;
  /** The link was closed before the stream ended. Nothing is called after it. */
  closed(cause: PerdureError): void;
}

/** What a stream needs of its epoch. */
export interface StreamHost {
  send(frame: Uint8Array, control: boolean): void;
  /** The stream is over; up to `staleBytes` of frames for it may be under way. */
  forget(stream: Stream, staleBytes: number): void;
}

export class Stream {
  readonly id: number;
  /** Allowed before the agent is let out. */
  readonly control: boolean;
  readonly #host: StreamHost;
  readonly #events: StreamEvents;
  #open = true;
  #responded = false;
  #hostEnded = false;
  #guestEnded = false;
  #receiveCredit = 0;
  #sendCredit = 0;

  constructor(host: StreamHost, id: number, control: boolean, events: StreamEvents) {
    this.#host = host;
    this.id = id;
    this.control = control;
    this.#events = events;
  }

  get open(): boolean {
    return this.#open;
  }

  get responded(): boolean {
    return this.#responded;
  }

  /** Bytes that the guest is ready to take. */
  get sendCredit(): number {
    return this.#sendCredit;
  }

  /** Lets the guest send `bytes` more. */
  grant(bytes: number): void {
    if (!this.#open) return;
    this.#receiveCredit += bytes;
    this.#host.send(encodeFrame(frameType.window, this.id, u32(bytes)), this.control);
  }

  /** Sends one piece that fits credit and frame; split where the magic must not be formed. */
  send(bytes: Uint8Array): void {
    if (!this.#open || bytes.length === 0) return;
    if (bytes.length > this.#sendCredit) throw new RangeError("More is sent than was granted");
    this.#sendCredit -= bytes.length;
    let from = 0;
    for (const point of [...splitPoints(bytes), bytes.length]) {
      this.#host.send(
        encodeFrame(frameType.data, this.id, bytes.subarray(from, point)),
        this.control,
      );
      from = point;
    }
  }

  /** Most bytes that `send` takes at once. */
  get sendable(): number {
    return Math.min(this.#sendCredit, FRAME_PAYLOAD_BYTES_MAX);
  }

  /** No more data from the host. The stream stays open for the answer. */
  end(): void {
    if (!this.#open || this.#hostEnded) return;
    this.#hostEnded = true;
    this.#host.send(encodeFrame(frameType.end, this.id, u16(0)), this.control);
    if (this.#guestEnded) this.#forget(CREDIT_BYTES_MAX + FRAME_PAYLOAD_BYTES_MAX);
  }

  /** Ends the stream without an answer. */
  cancel(): void {
    if (!this.#open) return;
    this.#host.send(encodeFrame(frameType.cancel, this.id), this.control);
    this.abandon();
  }

  /** Forgets the stream; what the guest still has to say about it is not heard. */
  abandon(): void {
    if (!this.#open) return;
    let staleBytes = this.#receiveCredit + FRAME_PAYLOAD_BYTES_MAX;
    if (!this.#responded) staleBytes += FRAME_PAYLOAD_BYTES_MAX;
    if (this.#events.window !== undefined) staleBytes += CREDIT_BYTES_MAX;
    this.#forget(staleBytes);
  }

  onResponse(status: number, fields: Fields): void {
    if (this.#responded) throw violation("a second RESPONSE");
    this.#responded = true;
    if (status !== 0 || this.#events.end === undefined) this.#forget(0);
    this.#guarded(() => this.#events.response(status, fields));
  }

  onData(payload: Uint8Array): void {
    if (this.#events.data === undefined) throw violation("DATA for an operation without any");
    if (!this.#responded) throw violation("DATA before RESPONSE");
    if (this.#guestEnded) throw violation("DATA after END");
    if (payload.length === 0) throw violation("DATA without a payload");
    if (payload.length > this.#receiveCredit) throw violation("DATA beyond the credit granted");
    this.#receiveCredit -= payload.length;
    this.#events.data(payload);
  }

  onEnd(status: number, fields: Fields): void {
    if (this.#events.end === undefined) throw violation("END for an operation without one");
    if (!this.#responded) throw violation("END before RESPONSE");
    if (status === 0 && this.#guestEnded) throw violation("a second END");
    this.#guestEnded = true;
    // What the guest said before it heard of the host's END may still come.
    if (status !== 0 || this.#events.duplex === undefined) this.#forget(0);
    else if (this.#hostEnded) this.#forget(CREDIT_BYTES_MAX + FRAME_PAYLOAD_BYTES_MAX);
    this.#guarded(() => this.#events.end?.(status, fields));
  }

  onWindow(bytes: number): void {
    if (this.#events.window === undefined) throw violation("WINDOW for an operation without data");
    if (bytes === 0) throw violation("WINDOW of no bytes");
    if (this.#sendCredit + bytes > CREDIT_BYTES_MAX) throw violation("WINDOW too far ahead");
    this.#sendCredit += bytes;
    this.#events.window();
  }

  onClosed(cause: PerdureError): void {
    if (!this.#open) return;
    this.#open = false;
    this.#events.closed(cause);
  }

  /** The last thing heard of a stream may break a rule as well; its owner must learn of it. */
  #guarded(handle: () => void): void {
    try {
      handle();
    } catch (error) {
      this.#open = false;
      this.#events.closed(PerdureError.from(error));
      throw error;
    }
  }

  #forget(staleBytes: number): void {
    this.#open = false;
    this.#host.forget(this, staleBytes);
  }
}
