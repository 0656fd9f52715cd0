/**
 * Files that are on disk when the call returns: content first, then the name (I2). Names that begin
 * with a dot are unfinished and may be removed by whoever finds them when nothing is being written.
 */
import { randomBytes } from "node:crypto";
import { constants } from "node:fs";
import { link, open, rename, rm, unlink } from "node:fs/promises";
import { basename, dirname, join } from "node:path";

export const FILE_MODE = 0o600;
export const FOLDER_MODE = 0o700;

/** Makes the names in a folder durable. */
export async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, "r");
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

/** Makes the content of a file durable, whoever wrote it. A link is not followed. */
export async function syncFile(path: string): Promise<void> {
  const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW);
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}

export function temporaryPath(path: string): string {
  return join(dirname(path), `.${basename(path)}.${randomBytes(6).toString("hex")}`);
}

export function isTemporary(name: string): boolean {
  return name.startsWith(".");
}

/** Writes a new file and makes its content durable; its name only after `syncFolder`. */
export async function writeNew(path: string, bytes: Uint8Array): Promise<void> {
  const file = await open(path, "wx", FILE_MODE);
  try {
    await file.writeFile(bytes);
    await file.sync();
  } finally {
    await file.close();
  }
}

/** Replaces or creates a file in one step. Durable. */
export async function replaceFile(path: string, bytes: Uint8Array): Promise<void> {
  const temporary = temporaryPath(path);
  try {
    await writeNew(temporary, bytes);
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
  await syncFolder(dirname(path));
}

/** Gives the file its final name unless something has it already; whoever is first wins. Durable. */
export async function publishOnce(temporary: string, path: string): Promise<void> {
  try {
    await link(temporary, path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  } finally {
    await unlink(temporary);
  }
  await syncFolder(dirname(path));
}

/** Creates the file with this content unless it exists. Durable, and whole for every reader. */
export async function createOnce(path: string, bytes: Uint8Array): Promise<void> {
  const temporary = temporaryPath(path);
  try {
    await writeNew(temporary, bytes);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
  await publishOnce(temporary, path);
}
