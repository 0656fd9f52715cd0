/**
 * A lock between CLIs that would all start the daemon. It is a lock of the kernel on a file, taken
 * through SQLite because Node offers no other; it vanishes with its process.
 */
import { closeSync, openSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";

export interface StartLock {
  release(): void;
}

/** Undefined where another process holds it. */
export function takeStartLock(path: string): StartLock | undefined {
  // Readers could hold a lock, too: nobody else may open it.
  closeSync(openSync(path, "a", 0o600));
  const database = new DatabaseSync(path, { timeout: 0 });
  try {
    // Without a journal file, so that it is to be had on a full disk, too.
    database.exec("PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE");
    return {
      release: () => {
        database.close();
      },
    };
  } catch (error) {
    database.close();
    if (/locked|busy/i.test(String(error))) return undefined;
    throw error;
  }
}
