/**
 * Reads a stream of bytes in pieces of the lengths that are asked for. Holds no more than the piece and one
 * chunk of the stream. Everything that was taken goes into one running digest.
 */
import { createHash } from "node:crypto";
import { invalid } from "./invalid.ts";

export class StreamReader {
  readonly #chunks: AsyncIterator<Uint8Array>;
  readonly #hash = createHash("sha256");
  /** What of the newest chunk was not taken yet. */
  #rest: Uint8Array = new Uint8Array();

  constructor(bytes: AsyncIterable<Uint8Array>) {
    this.#chunks = bytes[Symbol.asyncIterator]();
  }

  /** Exactly `count` bytes, in memory of their own. @throws `export_invalid` where the stream ends before */
  async take(count: number): Promise<Buffer<ArrayBuffer>> {
    const piece = Buffer.alloc(count);
    for (let filled = 0; filled < count;) {
      if (this.#rest.length === 0) await this.#next("it ends too early");
      const taken = this.#rest.subarray(0, count - filled);
      piece.set(taken, filled);
      filled += taken.length;
      this.#rest = this.#rest.subarray(taken.length);
    }
    this.#hash.update(piece);
    return piece;
  }

  /** SHA-256 of everything that was taken so far. */
  digest(): Buffer {
    return this.#hash.copy().digest();
  }

  /** @throws `export_invalid` where anything follows */
  async end(): Promise<void> {
    while (this.#rest.length === 0) {
      const next = await this.#chunks.next();
      if (next.done === true) return;
      this.#rest = next.value;
    }
    throw invalid("bytes follow its end");
  }

  /** Lets go of the stream, wherever it is. */
  async close(): Promise<void> {
    await this.#chunks.return?.();
  }

  async #next(problem: string): Promise<void> {
    const next = await this.#chunks.next();
    if (next.done === true) throw invalid(problem);
    this.#rest = next.value;
  }
}
