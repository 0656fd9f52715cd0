/**
 * The guest's end of the wire, for the fake: looks for RESYNC everywhere, keeps credit, answers.
 *
 * Written against the page and not against the host end, so that the two check each other; only the
 * byte layouts (frames, fields) are shared.
 */
import type { Duplex } from "node:stream";
import { Fields, FieldWriter } from "../field.ts";
import { encodeFrame, FrameParser, frameType, u16, u32, type FrameType } from "../frame.ts";
import { tag } from "../operation.ts";
import { GREETING_BYTES, resyncMagic, syncedMagic } from "../resync.ts";

export interface FakePortEvents {
  /** The version of the protocol that this guest speaks. */
  readonly version: number;
  /** Bytes to send before SYNCED, or null not to answer at all. */
  resynced(generation: number): Uint8Array | null;
  request(stream: FakeStream, op: number, fields: Fields): void;
}

/** One open stream. Its owner sets what it wants to hear. */
export class FakeStream {
  readonly id: number;
  readonly #port: FakePort;
  credit = 0;
  open = true;
  onData: ((bytes: Uint8Array) => void) | undefined;
  onEnd: (() => void) | undefined;
  onWindow: (() => void) | undefined;
  onClose: (() => void) | undefined;

  constructor(port: FakePort, id: number) {
    this.#port = port;
    this.id = id;
  }

  respond(statusCode: number, fields = new FieldWriter(), last = true): void {
    this.#send(frameType.response, u16(statusCode), fields.finish());
    if (last) this.#port.drop(this);
  }

  fail(statusCode: number, message: string): void {
    this.respond(statusCode, new FieldWriter().string(tag.message, message));
  }

  data(...parts: readonly Uint8Array[]): void {
    for (const part of parts) this.credit -= part.length;
    this.#send(frameType.data, ...parts);
  }

  end(statusCode: number, fields = new FieldWriter()): void {
    this.#send(frameType.end, u16(statusCode), fields.finish());
    this.#port.drop(this);
  }

  /** The end of the guest's direction only. */
  endOwn(): void {
    this.#send(frameType.end, u16(0), new Uint8Array(0));
  }

  /** Nothing more is said or heard. */
  drop(): void {
    this.#port.drop(this);
  }

  grant(bytes: number): void {
    this.#send(frameType.window, u32(bytes));
  }

  #send(type: FrameType, ...parts: readonly Uint8Array[]): void {
    if (this.open) this.#port.write(encodeFrame(type, this.id, ...parts));
  }
}

export class FakePort {
  readonly #socket: Duplex;
  readonly #events: FakePortEvents;
  readonly #streams = new Map<number, FakeStream>();
  #tail = Buffer.alloc(0);
  #parser: FrameParser | undefined;

  constructor(socket: Duplex, events: FakePortEvents) {
    this.#socket = socket;
    this.#events = events;
    socket.on("data", (chunk: Buffer) => this.#received(chunk));
    socket.on("error", () => this.close());
    socket.on("close", () => this.#endEpoch());
  }

  /** The CPUs stop: nothing is read. */
  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#socket.resume();
  }

  close(): void {
    this.#endEpoch();
    this.#socket.destroy();
  }

  event(kind: number, fields: FieldWriter): void {
    if (this.#parser === undefined) return;
    this.write(encodeFrame(frameType.event, 0, u16(kind), fields.finish()));
  }

  write(bytes: Uint8Array): void {
    if (!this.#socket.destroyed) this.#socket.write(bytes);
  }

  drop(stream: FakeStream): void {
    stream.open = false;
    this.#streams.delete(stream.id);
  }

  #received(chunk: Buffer): void {
    const bytes = Buffer.concat([this.#tail, chunk]);
    const at = bytes.indexOf(resyncMagic);
    if (at >= 0 && bytes.length - at >= GREETING_BYTES) {
      this.#tail = Buffer.alloc(0);
      this.#resync(bytes.subarray(at, at + GREETING_BYTES));
      if (bytes.length > at + GREETING_BYTES) this.#received(bytes.subarray(at + GREETING_BYTES));
      return;
    }
    const kept = at >= 0 ? bytes.length - at : Math.min(bytes.length, resyncMagic.length - 1);
    this.#tail = Buffer.from(bytes.subarray(bytes.length - kept));
    try {
      this.#parser?.push(chunk);
    } catch {
      this.#endEpoch();
    }
  }

  #resync(greeting: Buffer): void {
    this.#endEpoch();
    const before = this.#events.resynced(Number(greeting.readBigUInt64LE(40)));
    if (before === null) return;
    this.write(before);
    const version = Math.min(this.#events.version, greeting.readUInt32LE(32));
    const rest = Buffer.concat([u32(version), greeting.subarray(36, 40), Buffer.alloc(8)]);
    this.write(Buffer.concat([syncedMagic, greeting.subarray(16, 32), rest]));
    this.#parser = new FrameParser((type, id, payload) => this.#frame(type, id, payload));
  }

  #endEpoch(): void {
    this.#parser = undefined;
    for (const stream of [...this.#streams.values()]) this.#close(stream);
  }

  #close(stream: FakeStream): void {
    this.drop(stream);
    stream.onClose?.();
  }

  #frame(type: FrameType, id: number, payload: Uint8Array): void {
    const stream = this.#streams.get(id);
    switch (type) {
      case frameType.request: {
        const copy = payload.slice();
        const opened = new FakeStream(this, id);
        this.#streams.set(id, opened);
        const op = (copy[0] ?? 0) | ((copy[1] ?? 0) << 8);
        this.#events.request(opened, op, Fields.parse(copy.subarray(2)));
        break;
      }
      case frameType.data:
        stream?.onData?.(payload);
        break;
      case frameType.end:
        stream?.onEnd?.();
        break;
      case frameType.window:
        if (stream === undefined) break;
        stream.credit += new DataView(payload.buffer, payload.byteOffset, 4).getUint32(0, true);
        stream.onWindow?.();
        break;
      case frameType.cancel:
        if (stream !== undefined) this.#close(stream);
        break;
      case frameType.response:
      case frameType.event:
        this.#endEpoch();
        break;
    }
  }
}
