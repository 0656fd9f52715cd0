/**
 * Buffers for batches of pages, used again. A new buffer costs a page fault for each page that it
 * holds, which is dearer than the copy into it.
 *
 * - I1 A buffer is in one place: here, or with whoever took it.
 * - I2 At most `retainedMax` stay here after use, however many were made.
 */
import { PAGE_BATCH_BYTES_MAX } from "./ports/page.ts";

/** Together 32 MiB: what all threads of a wake have in their hands at once. */
const retainedMax = 8;

export class PageBuffers {
  readonly #free: ArrayBuffer[] = [];

  /** A buffer of `PAGE_BATCH_BYTES_MAX`; what it holds is left over from its last use. */
  take(): ArrayBuffer {
    return this.#free.pop() ?? new ArrayBuffer(PAGE_BATCH_BYTES_MAX);
  }

  /** Takes a buffer that nobody uses any more; those of other sizes are left to the collector. */
  give(buffer: ArrayBuffer): void {
    if (buffer.byteLength === PAGE_BATCH_BYTES_MAX) this.#free.push(buffer);
    this.trim();
  }

  /** Leaves all but `retainedMax` to the collector. */
  trim(): void {
    this.#free.length = Math.min(this.#free.length, retainedMax);
  }

  /** Makes sure that the next `count` buffers that are taken were touched by `make` before. */
  async prepare(count: number, make: () => Promise<ArrayBuffer>): Promise<void> {
    const missing = Math.max(0, count - this.#free.length);
    this.#free.push(...(await Promise.all(Array.from({ length: missing }, make))));
  }
}
