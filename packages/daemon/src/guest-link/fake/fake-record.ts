/** Records that the fake guest sends. */
import type { FieldWriter } from "../field.ts";
import { u32 } from "../frame.ts";
import { status } from "../operation.ts";
import type { FakeStream } from "./fake-port.ts";

const FRAME_BYTES = 32 * 1024;

export function record(fields: FieldWriter): Buffer {
  const bytes = fields.finish();
  return Buffer.concat([u32(bytes.length), bytes]);
}

/** Sends as credit allows. */
export class RecordQueue {
  readonly #stream: FakeStream;
  #waiting = Buffer.alloc(0);
  #ended = false;

  constructor(stream: FakeStream) {
    this.#stream = stream;
    stream.onWindow = () => this.#pump();
  }

  push(bytes: Buffer): void {
    this.#waiting = Buffer.concat([this.#waiting, bytes]);
    this.#pump();
  }

  end(): void {
    this.#ended = true;
    this.#pump();
  }

  #pump(): void {
    const bytes = Math.min(this.#waiting.length, this.#stream.credit);
    for (let at = 0; at < bytes; at += FRAME_BYTES) {
      this.#stream.data(this.#waiting.subarray(at, Math.min(at + FRAME_BYTES, bytes)));
    }
    this.#waiting = this.#waiting.subarray(Math.max(bytes, 0));
    if (this.#ended && this.#waiting.length === 0 && this.#stream.open) this.#stream.end(status.ok);
  }
}
