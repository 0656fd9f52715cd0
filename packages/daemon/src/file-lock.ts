/**
 * One worker at a time, across processes. The lock is the kernel's, on a file that an empty SQLite
 * database stands for: it ends with its process however that ends, so there is no stale lock to break,
 * and it works between containers that share the folder.
 */
import { chmodSync, closeSync, openSync } from "node:fs";
import { readFile, stat } from "node:fs/promises";
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

/** As `withFileLock`, unless another holds it: null then. Also where there is no folder for the lock. */
export async function tryWithFileLock<T>(path: string, work: () => Promise<T>): Promise<T | null> {
  let lock: ReturnType<typeof tryFileLock>;
  try {
    lock = tryFileLock(path);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "EACCES" || code === "EROFS") return null;
    throw error;
  }
  if (lock === null) return null;
  try {
    return await work();
  } finally {
    lock.release();
  }
}

/** Takes the lock where nobody has it; null otherwise. Held until `release`, or the end of the process. */
export function tryFileLock(path: string): { release(): void } | null {
  makePrivate(path);
  const lock = new DatabaseSync(path);
  let isTaken = false;
  try {
    isTaken = tryLock(lock);
  } finally {
    if (!isTaken) lock.close();
  }
  return isTaken ? { release: () => lock.close() } : null;
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

/**
 * The process that holds an exclusive lock on `path`, as the kernel says; `null` where none does, or
 * where that cannot be known: it is in another PID namespace, or the file system shows other numbers.
 * The file is not opened.
 */
export async function lockHolder(path: string): Promise<number | null> {
  const facts = await stat(path, { bigint: true }).catch(() => null);
  const locks = await readFile("/proc/locks", "utf8").catch(() => "");
  if (facts === null) return null;
  const holders = new Set<number>();
  for (const [, pid, major, minor, inode] of locks.matchAll(lockLine)) {
    const device = deviceNumber(BigInt(`0x${major}`), BigInt(`0x${minor}`));
    if (device === facts.dev && inode === String(facts.ino)) holders.add(Number(pid));
  }
  const [holder, ...others] = holders;
  return holder === undefined || others.length > 0 ? null : holder;
}

/** Of a lock that is held; one that is waited for has an arrow before its kind. */
const lockLine = /^\d+: POSIX +\w+ +WRITE +([1-9]\d*) +([0-9a-f]+):([0-9a-f]+):(\d+) /gm;

/** As `stat` has it. */
function deviceNumber(major: bigint, minor: bigint): bigint {
  return (
    (minor & 0xffn) |
    ((major & 0xfffn) << 8n) |
    ((minor & ~0xffn) << 12n) |
    ((major & ~0xfffn) << 32n)
  );
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
