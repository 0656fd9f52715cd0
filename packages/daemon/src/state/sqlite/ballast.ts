/**
 * Ballast: a file beside the database that holds room on the disk. On a full disk SQLite can store
 * nothing, not even that an agent is removed to make room; then the ballast is let go.
 *
 * Whoever writes beside us takes what is free: half of the room goes to the write-ahead log at once. Its
 * file never shrinks while it is open and is used again from the start after each checkpoint, so that
 * room stays ours. `perdure doctor` looks for the file by its name.
 */
import { randomBytes } from "node:crypto";
import {
  closeSync,
  existsSync,
  fstatSync,
  fsyncSync,
  openSync,
  renameSync,
  rmSync,
  statfsSync,
  writeSync,
} from "node:fs";
import { dirname } from "node:path";

export const BALLAST_BYTES = 8 * 1024 * 1024;
/** Made again only where as much stays free beside it: not to fill the disk to the last byte itself. */
export const BALLAST_NEEDS_BYTES = 2 * BALLAST_BYTES;
/** What the log gets: two rounds between checkpoints of SQLite. */
const LOG_ROOM_BYTES = BALLAST_BYTES / 2;
const PIECE_BYTES = 1024 * 1024;

export class Ballast {
  readonly folder: string;
  readonly #path: string;
  readonly #logPath: string;
  #held: boolean;

  constructor(databasePath: string) {
    this.folder = dirname(databasePath);
    this.#path = `${databasePath}.ballast`;
    this.#logPath = `${databasePath}-wal`;
    this.#held = existsSync(this.#path);
  }

  get held(): boolean {
    return this.#held;
  }

  /** Makes the file where it is not there and the disk has room for it. Returns whether it is held. */
  take(): boolean {
    if (this.#held) return true;
    const unfinished = `${this.#path}.new`;
    try {
      const { bavail, bsize } = statfsSync(this.folder);
      if (bavail * bsize < BALLAST_NEEDS_BYTES) return false;
      const file = openSync(unfinished, "w", 0o600);
      try {
        // Random: a file system that compresses or leaves out zeros holds no room for those.
        append(file, BALLAST_BYTES, () => randomBytes(PIECE_BYTES));
      } finally {
        closeSync(file);
      }
      renameSync(unfinished, this.#path);
      this.#held = true;
    } catch {
      // Someone else took the room meanwhile; the next try may be luckier.
      removed(unfinished);
    }
    return this.#held;
  }

  /** Gives the room up, to the log first. Returns whether there was any. */
  letGo(): boolean {
    // On a full file system that copies on write even a removal may find no room.
    if (!this.#held || !removed(this.#path)) return false;
    this.#held = false;
    this.giveToLog();
    return true;
  }

  /** Takes what is left of the disk for the log, up to its share. */
  giveToLog(): void {
    try {
      const file = openSync(this.#logPath, "r+");
      try {
        // Zeros are no frames: SQLite reads a log up to the first frame that is not whole.
        append(file, LOG_ROOM_BYTES, () => new Uint8Array(PIECE_BYTES));
      } finally {
        closeSync(file);
      }
    } catch {
      // What the log did not get is still free, or somebody's; changes are tried all the same.
    }
  }
}

function removed(path: string): boolean {
  try {
    rmSync(path, { force: true });
    return true;
  } catch {
    return false;
  }
}

function append(file: number, bytes: number, piece: () => Uint8Array): void {
  const start = fstatSync(file).size;
  for (let at = start; at < start + bytes;) at += writeSync(file, piece(), 0, PIECE_BYTES, at);
  fsyncSync(file);
}
