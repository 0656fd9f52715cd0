/**
 * A memory base of the agent's own: what the machine has in memory, whole, as one sparse file that
 * the next machine maps. Written where the delta has outgrown what is quick to inject.
 *
 * One pass: each block of the old base is read, captured pages are laid over it, and it is hashed and
 * written, zero pages as holes. Batches go to the workers as they arrive; a block that a batch ends
 * in waits for the next.
 */
import { link, open, rename, stat } from "node:fs/promises";
import { join } from "node:path";
import type { Digest } from "@perdure/protocol";
import type { PageBatch } from "../../core/ports/page.ts";
import { blockCount, contentDigest } from "../content-digest.ts";
import { FILE_MODE, syncFile, syncFolder, temporaryPath } from "../durable.ts";
import { PAGE_BYTES } from "../page-size.ts";
import { BLOCK_PAGES } from "../work/base-file.ts";
import type { WorkPool } from "../work/pool.ts";

/** Blocks of unchanged base written by one job, so that all threads have a share. */
const blocksPerJob = 32;
const inFlightBytesMax = 64 * 1024 * 1024;

export interface BaseSource {
  readonly bytes: number;
  readonly basePath: string | null;
}

/** Writes the base to `outPath`, content durable. Returns its digest. */
export async function writeBaseFile(
  pool: WorkPool,
  source: BaseSource,
  outPath: string,
  pages: AsyncIterable<PageBatch>,
  count: (bytes: number) => void = () => undefined,
): Promise<Digest> {
  const file = await open(outPath, "wx", FILE_MODE);
  try {
    await file.truncate(source.bytes);
  } finally {
    await file.close();
  }
  const jobs: Promise<Uint8Array>[] = [];
  const running = new Set<Promise<unknown>>();
  let inFlight = 0;
  const start = (fromBlock: number, toBlock: number, parts: PageBatch[], size: number): void => {
    const buffers = parts.flatMap(({ indexes, bytes }) => [indexes.buffer, bytes.buffer]);
    const job = pool
      .run("writeBase", { ...source, outPath, fromBlock, toBlock, parts }, buffers)
      .then(({ digests, spent }) => {
        for (const buffer of spent) pool.buffers.give(buffer);
        return digests;
      });
    jobs.push(job);
    inFlight += size;
    const done: Promise<void> = job
      .then(
        () => undefined,
        () => undefined,
      )
      .then(() => {
        inFlight -= size;
        running.delete(done);
      });
    running.add(done);
  };
  const blocks = blockCount(source.bytes);
  let block = 0;
  let carried: PageBatch[] = [];
  try {
    for await (const batch of pages) {
      count(batch.bytes.length);
      const last = batch.indexes.at(-1);
      if (last === undefined) continue;
      if (last * PAGE_BYTES >= source.bytes) throw new Error("A captured page leaves the memory");
      const complete = Math.floor((last + 1) / BLOCK_PAGES);
      const size = batch.bytes.length;
      while (running.size > 0 && inFlight + size > inFlightBytesMax) await Promise.race(running);
      if (complete > block) {
        const rest = tail(batch, complete * BLOCK_PAGES);
        start(block, complete, [...carried, batch], size);
        block = complete;
        carried = rest.indexes.length > 0 ? [rest] : [];
      } else carried.push(batch);
    }
    while (block < blocks) {
      const to = Math.min(block + blocksPerJob, blocks);
      start(block, to, carried, 0);
      carried = [];
      block = to;
    }
    const digest = contentDigest(source.bytes, await Promise.all(jobs));
    await syncFile(outPath);
    return digest;
  } finally {
    await Promise.all(running);
  }
}

/** Pages from this index on, copied. */
function tail({ indexes, bytes }: PageBatch, fromIndex: number): PageBatch {
  let at = indexes.length;
  while (at > 0 && (indexes[at - 1] ?? 0) >= fromIndex) at--;
  return { indexes: indexes.slice(at), bytes: bytes.slice(at * PAGE_BYTES) };
}

/**
 * Puts the finished file under its digest, over one that is there: that had the same content, unless it
 * was damaged. Returns whether it is new.
 */
export async function publishBase(
  bases: string,
  temporary: string,
  digest: Digest,
): Promise<boolean> {
  const path = join(bases, digest);
  const isNew = (await stat(path).catch(() => null)) === null;
  await rename(temporary, path);
  await syncFolder(bases);
  return isNew;
}

/** Gives the agent a name of its own for a base in another agent's folder: it was forked from there. */
export async function adoptBase(
  pool: WorkPool,
  bases: string,
  digest: Digest,
  from: string,
  bytes: number,
): Promise<void> {
  const path = join(bases, digest);
  try {
    await link(from, path);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === "EEXIST") return;
    if (code !== "EXDEV" && code !== "EMLINK" && code !== "EPERM") throw error;
    const temporary = temporaryPath(path);
    await writeBaseFile(pool, { bytes, basePath: from }, temporary, noPages());
    await rename(temporary, path);
  }
  await syncFolder(bases);
}

export async function* noPages(): AsyncGenerator<PageBatch> {
  // A base without changes.
}
