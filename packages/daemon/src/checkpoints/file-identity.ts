/**
 * Identity of a file: device, inode, size and time of the last change to its content.
 *
 * The time of the last change to the inode (ctime) is left out on purpose: giving a file to a VMM's
 * user changes it, and so does every hard link. Content cannot change without mtime changing, short
 * of someone setting mtime back; the check once per host boot is for those, and for the disk itself.
 */
import { lstat } from "node:fs/promises";
import { Damage } from "./damage.ts";

export interface FileIdentity {
  readonly dev: string;
  readonly ino: string;
  readonly size: number;
  readonly mtimeNs: string;
}

/** @throws Damage where there is no regular file */
export async function fileIdentity(path: string, part: "base" | "layer"): Promise<FileIdentity> {
  const stats = await lstat(path, { bigint: true }).catch((error: unknown) => {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw error;
  });
  if (stats === null) throw new Damage(part, "presence", `its ${part} is missing`);
  if (!stats.isFile()) throw new Damage(part, "presence", `its ${part} is not a regular file`);
  return {
    dev: String(stats.dev),
    ino: String(stats.ino),
    size: Number(stats.size),
    mtimeNs: String(stats.mtimeNs),
  };
}

export function sameIdentity(a: FileIdentity, b: FileIdentity): boolean {
  return a.dev === b.dev && a.ino === b.ino && a.size === b.size && a.mtimeNs === b.mtimeNs;
}
