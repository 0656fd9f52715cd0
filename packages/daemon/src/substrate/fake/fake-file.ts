/** The files that fake machines map and write: in memory, or under a real data directory. */
import { mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";

export interface FakeFiles {
  read(path: string): Uint8Array | null;
  write(path: string, bytes: Uint8Array): void;
}

/** Files in a map; what is stored is never changed in place, so a reader may keep it. */
export class MemoryFiles implements FakeFiles {
  readonly all = new Map<string, Uint8Array>();

  read(path: string): Uint8Array | null {
    return this.all.get(path) ?? null;
  }

  write(path: string, bytes: Uint8Array): void {
    this.all.set(path, bytes);
  }
}

/** Files of this size and more are bases: they are read once as long as they stay the same. */
const BASE_BYTES_MIN = 1024 * 1024;

/** Files of the real file system. */
export class RealFiles implements FakeFiles {
  readonly #bases = new Map<string, { readonly changedMs: number; readonly bytes: Uint8Array }>();

  read(path: string): Uint8Array | null {
    const facts = statSync(path, { throwIfNoEntry: false });
    if (facts === undefined) return null;
    const known = this.#bases.get(path);
    if (known?.changedMs === facts.mtimeMs) return known.bytes;
    const bytes = readFileSync(path);
    if (bytes.length >= BASE_BYTES_MIN) {
      this.#bases.set(path, { changedMs: facts.mtimeMs, bytes });
    }
    return bytes;
  }

  write(path: string, bytes: Uint8Array): void {
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, bytes);
  }
}
