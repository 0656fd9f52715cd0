/**
 * One worker at a time, across processes. The lock is the kernel's, on a file that an empty SQLite
 * database stands for: it ends with its process however that ends, so there is no stale lock to break,
 * and it works between containers that share the folder.
 */
import { chmodSync, closeSync, openSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { setTimeout } from "node:timers/promises";

const pollMs = 50;
const sqliteBusy = 5;

/**
 * Runs `work` while holding the exclusive lock on `path`, which is created where absent and stays.
 *
 * @param onWait called once where another holds it
 * @throws the system's error where the file cannot be made
 */
export async function withFileLock<T>(
  path: string,
  work: () => Promise<T>,
  onWait?: () => void,
): Promise<T> {
  makePrivate(path);
  const lock = new DatabaseSync(path);
  try {
    if (!tryLock(lock)) {
      onWait?.();
      do await setTimeout(pollMs);
      while (!tryLock(lock));
    }
    return await work();
  } finally {
    lock.close();
  }
}

/**
 * Whoever can read a file can lock it, for ever: not a VM process. One that is there is not opened: a
 * process that closes any descriptor of a file loses its locks on it.
 */
function makePrivate(path: string): void {
  try {
    closeSync(openSync(path, "wx", 0o600));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    chmodSync(path, 0o600);
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
