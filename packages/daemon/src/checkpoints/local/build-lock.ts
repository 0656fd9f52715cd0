/**
 * One worker at a time on a folder, across processes. The lock is the kernel's, on a file that an
 * empty SQLite database stands for: it ends with its process however that ends, so there is no stale
 * lock to break, and it works between containers that share the folder.
 */
import { closeSync, openSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import type { Clock } from "../../core/ports/clock.ts";

const pollMs = 50;
const sqliteBusy = 5;

/** Runs `work` while holding the exclusive lock on `path`, which is created where absent and stays. */
export async function withBuildLock<T>(
  path: string,
  clock: Pick<Clock, "wait">,
  work: () => Promise<T>,
): Promise<T> {
  createPrivately(path);
  const lock = new DatabaseSync(path);
  try {
    while (!tryLock(lock)) await clock.wait(pollMs);
    return await work();
  } finally {
    lock.close();
  }
}

/** Whoever can read a file can lock it, for ever: not a VM process. Never opens one that is there. */
function createPrivately(path: string): void {
  try {
    closeSync(openSync(path, "wx", 0o600));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  }
}

function tryLock(lock: DatabaseSync): boolean {
  try {
    lock.exec("BEGIN EXCLUSIVE");
    return true;
  } catch (error) {
    if ((error as { errcode?: number }).errcode === sqliteBusy) return false;
    throw error;
  }
}
