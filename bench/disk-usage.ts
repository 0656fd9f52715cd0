/**
 * Bytes on disk below a folder, by the blocks that the kernel says are allocated.
 *
 * A file with several names counts once, and one whose other names lie outside of the folder is shared
 * with something else: it counts where `shared` says so.
 */
import { lstat, readdir } from "node:fs/promises";
import path from "node:path";

const BLOCK = 512;

export interface DiskUsageOptions {
  /** Paths below the folder to leave out, relative to it. */
  readonly without?: readonly string[];
  /** Count files that have names outside of the folder, too. Default: no. */
  readonly shared?: boolean;
}

export async function diskUsage(folder: string, options: DiskUsageOptions = {}): Promise<number> {
  const files = new Map<number, { blocks: number; names: number; links: number }>();
  await visit(folder, "", options.without ?? [], files);
  let blocks = 0;
  for (const file of files.values()) {
    if (file.names === file.links || options.shared === true) blocks += file.blocks;
  }
  return blocks * BLOCK;
}

async function visit(
  root: string,
  at: string,
  without: readonly string[],
  files: Map<number, { blocks: number; names: number; links: number }>,
): Promise<void> {
  const entries = await readdir(path.join(root, at), { withFileTypes: true }).catch(absent);
  for (const entry of entries) {
    const name = path.join(at, entry.name);
    if (without.includes(name)) continue;
    const stat = await lstat(path.join(root, name)).catch(() => null);
    if (stat === null) continue; // Removed meanwhile.
    if (entry.isDirectory()) {
      files.set(stat.ino, { blocks: stat.blocks, names: 1, links: 1 });
      await visit(root, name, without, files);
      continue;
    }
    const known = files.get(stat.ino);
    if (known === undefined) {
      files.set(stat.ino, { blocks: stat.blocks, names: 1, links: stat.nlink });
    } else known.names++;
  }
}

function absent(error: NodeJS.ErrnoException): never[] {
  if (error.code === "ENOENT") return [];
  throw error;
}
