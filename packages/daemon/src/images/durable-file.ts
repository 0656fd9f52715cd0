/** Making files and directories that are there whole or not at all, also after a power cut. */
import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { chmod, mkdtemp, open, readdir, rename, rm, stat, writeFile } from "node:fs/promises";
import path from "node:path";
import { pipeline } from "node:stream/promises";
import type { Digest } from "@perdure/protocol";
import type { Content } from "./image-record.ts";

const temporaryPrefix = ".building-";

/** A new temporary directory inside `parent`, to be renamed or removed. */
export function makeBuildDirectory(parent: string): Promise<string> {
  return mkdtemp(path.join(parent, temporaryPrefix));
}

/** Removes what builds that were killed left in `parent`. Only while holding the build lock. */
export async function removeLeftovers(parent: string): Promise<void> {
  for (const name of await readdir(parent)) {
    if (name.startsWith(temporaryPrefix)) {
      await rm(path.join(parent, name), { recursive: true, force: true });
    }
  }
}

/** Makes every file in `directory` read-only and durable, then gives it its name. */
export async function publishDirectory(directory: string, target: string): Promise<void> {
  for (const name of await readdir(directory)) {
    await chmod(path.join(directory, name), 0o444);
    await syncPath(path.join(directory, name));
  }
  await chmod(directory, 0o755); // mkdtemp gives 0700; a VMM's own user must reach the files
  await syncPath(directory);
  await rm(target, { recursive: true, force: true });
  await rename(directory, target);
  await syncPath(path.dirname(target));
}

/** Makes `file` read-only and durable, then gives it its name. */
export async function publishFile(file: string, target: string): Promise<void> {
  await chmod(file, 0o444);
  await syncPath(file);
  await rename(file, target);
  await syncPath(path.dirname(target));
}

/** Writes `text` to `target`, replacing what was there in one step. */
export async function replaceFile(target: string, text: string): Promise<void> {
  const temporary = `${target}.${String(process.pid)}.tmp`;
  await writeFile(temporary, text);
  await publishFile(temporary, target);
}

/** Digest and length of a file. */
export async function contentOf(file: string): Promise<Content> {
  const hash = createHash("sha256");
  await pipeline(createReadStream(file, { highWaterMark: 1 << 20 }), hash);
  return { sha256: hash.digest("hex") as Digest, bytes: (await stat(file)).size };
}

async function syncPath(at: string): Promise<void> {
  const handle = await open(at, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
