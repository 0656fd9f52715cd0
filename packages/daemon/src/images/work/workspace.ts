/**
 * A folder for one import or build, in the images directory, so that what is whole is renamed and not
 * copied. It belongs to whoever holds the lock in it: that ends with its process, and then the folder is a
 * left-over that the next daemon removes.
 */
import { mkdir, mkdtemp, readdir, rm } from "node:fs/promises";
import path from "node:path";
import { tryFileLock, withFileLock } from "../../file-lock.ts";

const prefix = ".work-";
/** Held while a folder is made or looked at: between its making and its lock it looks like a left-over. */
const makingLock = ".work.lock";
const ownLock = "lock";

export interface Workspace {
  readonly path: string;
  /** Removes it. */
  close(): Promise<void>;
}

export async function openWorkspace(directory: string): Promise<Workspace> {
  await mkdir(directory, { recursive: true });
  return withFileLock(path.join(directory, makingLock), async () => {
    const made = await mkdtemp(path.join(directory, prefix));
    const lock = tryFileLock(path.join(made, ownLock));
    if (lock === null) throw new Error(`Somebody else holds the new folder "${made}"`);
    return {
      path: made,
      close: async () => {
        lock.release();
        await removeFolder(made);
      },
    };
  });
}

/** Removes the folders of processes that have ended. @returns how many */
export async function removeDeadWorkspaces(directory: string): Promise<number> {
  const names = await readdir(directory).catch((): string[] => []);
  const candidates = names.filter((name) => name.startsWith(prefix));
  if (candidates.length === 0) return 0;
  return withFileLock(path.join(directory, makingLock), async () => {
    let removed = 0;
    for (const name of candidates) {
      const lock = tryFileLock(path.join(directory, name, ownLock));
      if (lock === null) continue;
      lock.release();
      await removeFolder(path.join(directory, name));
      removed += 1;
    }
    return removed;
  });
}

/** A tool that is just being ended may still write. */
async function removeFolder(at: string): Promise<void> {
  await rm(at, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
}
