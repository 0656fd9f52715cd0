/** The files that fake machines map and write: in memory, or under a real data directory. */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
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

export const realFiles: FakeFiles = {
  read(path) {
    try {
      return readFileSync(path);
    } catch {
      return null;
    }
  },
  write(path, bytes) {
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, bytes);
  },
};
