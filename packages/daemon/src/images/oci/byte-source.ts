/**
 * Bytes that are read in order: what the tar reader stands on. One comes from a stream (a layer, as it
 * is decompressed), one from a file, where what is skipped is not read.
 */
import type { FileHandle } from "node:fs/promises";
import { invalid } from "./archive-error.ts";

export interface ByteSource {
  /** The next `length` bytes; null where there are none at all. @throws where they end within */
  read(length: number): Promise<Buffer | null>;
  /** @throws where there are fewer */
  skip(length: number): Promise<void>;
  /** The next `length` bytes in pieces. Leaving the loop leaves the rest unread. @throws where there are fewer */
  pieces(length: number): AsyncGenerator<Buffer>;
}

const ended = (): Error => invalid("it ends in the middle of a file");

export class StreamSource implements ByteSource {
  readonly #stream: AsyncIterator<Buffer>;
  #held: Buffer = Buffer.alloc(0);

  constructor(stream: AsyncIterable<Buffer>) {
    this.#stream = stream[Symbol.asyncIterator]();
  }

  async read(length: number): Promise<Buffer | null> {
    if (this.#held.length < length) {
      const parts = [this.#held];
      let bytes = this.#held.length;
      while (bytes < length) {
        const next = await this.#stream.next();
        if (next.done === true) {
          if (bytes === 0) return null;
          throw ended();
        }
        parts.push(next.value);
        bytes += next.value.length;
      }
      this.#held =
        parts.length === 2 && this.#held.length === 0 ? (parts[1] as Buffer) : Buffer.concat(parts);
    }
    return this.#take(length);
  }

  async skip(length: number): Promise<void> {
    for await (const _ of this.pieces(length)) {
      // dropped
    }
  }

  async *pieces(length: number): AsyncGenerator<Buffer> {
    let left = length;
    while (left > 0) {
      if (this.#held.length === 0) {
        const next = await this.#stream.next();
        if (next.done === true) throw ended();
        this.#held = next.value;
        continue;
      }
      const piece = this.#take(Math.min(left, this.#held.length));
      left -= piece.length;
      yield piece;
    }
  }

  /** Reads on to the end of the stream, so that whoever looks at all of it has seen it. */
  async drain(): Promise<void> {
    this.#held = Buffer.alloc(0);
    for (;;) if ((await this.#stream.next()).done === true) return;
  }

  #take(length: number): Buffer {
    const taken = this.#held.subarray(0, length);
    this.#held = this.#held.subarray(length);
    return taken;
  }
}

const pieceBytes = 256 * 1024;

export class FileSource implements ByteSource {
  /** Of the next byte that is read. */
  position = 0;
  readonly #file: FileHandle;
  readonly #bytes: number;

  constructor(file: FileHandle, bytes: number) {
    this.#file = file;
    this.#bytes = bytes;
  }

  async read(length: number): Promise<Buffer | null> {
    if (this.position >= this.#bytes) return null;
    if (this.position + length > this.#bytes) throw ended();
    const buffer = Buffer.allocUnsafe(length);
    let got = 0;
    while (got < length) {
      const at = this.position + got;
      const { bytesRead } = await this.#file.read(buffer, got, length - got, at);
      if (bytesRead === 0) throw ended();
      got += bytesRead;
    }
    this.position += length;
    return buffer;
  }

  skip(length: number): Promise<void> {
    if (this.position + length > this.#bytes) return Promise.reject(ended());
    this.position += length;
    return Promise.resolve();
  }

  async *pieces(length: number): AsyncGenerator<Buffer> {
    for (let left = length; left > 0;) {
      const piece = await this.read(Math.min(left, pieceBytes));
      if (piece === null) throw ended();
      left -= piece.length;
      yield piece;
    }
  }
}
