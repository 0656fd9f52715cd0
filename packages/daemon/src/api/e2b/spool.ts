/**
 * Files that come without their length are kept on the host's disk until they are whole: the sandbox is told how long
 * a file is before its first byte. All of one upload are in one file, which has no name: nothing is left of it,
 * whatever ends.
 */
import { mkdir, open, unlink } from "node:fs/promises";
import type { FileHandle } from "node:fs/promises";
import { join } from "node:path";
import { apiLimits, PerdureError } from "@perdure/protocol";

const CHUNK_BYTES = 64 * 1024;

export interface Spooled {
  readonly size: number;
  /** From the beginning. Each reader has a place of its own. */
  bytes(): AsyncIterable<Uint8Array>;
}

export class Spool implements AsyncDisposable {
  readonly #file: FileHandle;
  #end = 0;

  private constructor(file: FileHandle) {
    this.#file = file;
  }

  /** @param name that nothing in the folder has */
  static async open(folder: string, name: string): Promise<Spool> {
    try {
      await mkdir(folder, { recursive: true, mode: 0o700 });
      const path = join(folder, name);
      const file = await open(path, "wx+", 0o600);
      await unlink(path);
      return new Spool(file);
    } catch (error) {
      throw spoolError(error);
    }
  }

  /** One after the other. @throws `too_large`, `disk_full`, and what `bytes` throws */
  async take(bytes: AsyncIterable<Uint8Array>): Promise<Spooled> {
    const first = this.#end;
    for await (const chunk of bytes) {
      if (this.#end + chunk.length - first > apiLimits.fileBytesMax) throw tooLarge();
      await this.#put(chunk);
    }
    const size = this.#end - first;
    return { size, bytes: () => this.#read(first, size) };
  }

  async #put(chunk: Uint8Array): Promise<void> {
    for (let at = 0; at < chunk.length;) {
      // A disk that is nearly full takes a part.
      const { bytesWritten } = await this.#file
        .write(chunk, at, chunk.length - at, this.#end)
        .catch((error: unknown) => {
          throw spoolError(error);
        });
      at += bytesWritten;
      this.#end += bytesWritten;
    }
  }

  async *#read(first: number, size: number): AsyncGenerator<Uint8Array> {
    for (let left = size; left > 0;) {
      const place = first + size - left;
      const wanted = Math.min(left, CHUNK_BYTES);
      const { bytesRead, buffer } = await this.#file.read(Buffer.alloc(wanted), 0, wanted, place);
      if (bytesRead === 0) throw new Error("A spooled file is shorter than what was written");
      left -= bytesRead;
      yield buffer.subarray(0, bytesRead);
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#file.close();
  }
}

export function tooLarge(): PerdureError {
  const { fileBytesMax } = apiLimits;
  return new PerdureError(
    "too_large",
    `Cannot write the file: it has more than ${fileBytesMax} bytes`,
  );
}

function spoolError(error: unknown): unknown {
  const { code } = error as NodeJS.ErrnoException;
  if (code !== "ENOSPC" && code !== "EDQUOT") return error;
  return new PerdureError("disk_full", "Cannot take the file: the host's disk is full", {
    hint: "Free some space on the host's disk, then try again.",
    cause: error,
  });
}
