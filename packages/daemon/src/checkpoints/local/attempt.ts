/** What one write has put on the disk so far, so that a write that fails leaves nothing behind. */
import { rm, stat } from "node:fs/promises";

export class Attempt {
  readonly #paths: string[] = [];
  readonly #undo: (() => Promise<void>)[] = [];
  /** An upper bound of the bytes that the write needs; for `disk_full`. */
  needBytes = 0;

  /** A file or folder that this write makes; noted before it is made. */
  owns(path: string): void {
    this.#paths.push(path);
  }

  onUndo(undo: () => Promise<void>): void {
    this.#undo.push(undo);
  }

  /** Allocated bytes of the files among what it made. */
  async addedBytes(files: readonly string[]): Promise<number> {
    const stats = await Promise.all(files.map((path) => stat(path)));
    return stats.reduce((sum, { blocks }) => sum + blocks * 512, 0);
  }

  /** Latest first: the manifest goes before what it names. */
  async undo(): Promise<void> {
    for (const path of this.#paths.toReversed()) await rm(path, { recursive: true, force: true });
    for (const undo of this.#undo) await undo();
  }
}
