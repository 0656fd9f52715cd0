/** Disk layers in an agent's folder: made empty, linked from a template, removed. */
import { constants, copyFile, link, lstat, rename, rm } from "node:fs/promises";
import { dirname } from "node:path";
import { syncFile, syncFolder, temporaryPath } from "../durable.ts";

/**
 * Gives an immutable layer a second name, or copies it where it is on another file system. Durable.
 * Idempotent: a layer that is there already is the same one, because its id is.
 */
export async function linkLayerFile(fromPath: string, path: string): Promise<void> {
  if (!(await lstat(fromPath)).isFile()) throw new Error(`"${fromPath}" is not a regular file`);
  try {
    await link(fromPath, path);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === "EEXIST") return;
    if (code !== "EXDEV" && code !== "EMLINK" && code !== "EPERM") throw error;
    await copyLayer(fromPath, path);
  }
  await syncFolder(dirname(path));
}

/** A file of its own with the same bytes. Durable once the folder is synced. */
export async function copyLayer(fromPath: string, path: string): Promise<void> {
  const temporary = temporaryPath(path);
  try {
    await copyFile(fromPath, temporary, constants.COPYFILE_EXCL | constants.COPYFILE_FICLONE);
    await syncFile(temporary);
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
}

export async function removeLayerFile(path: string): Promise<void> {
  await rm(path, { force: true });
  await syncFolder(dirname(path));
}
