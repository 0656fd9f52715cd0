/**
 * Stores captured pages: each batch is classified by a worker as it arrives and its new pages are
 * appended to one pack; then the page map is put together.
 */
import { open, rm } from "node:fs/promises";
import type { PackId } from "@perdure/protocol";
import { makeId } from "@perdure/protocol";
import { randomBytes } from "node:crypto";
import type { PageBatch } from "../../core/ports/page.ts";
import type { StoreStep } from "../../core/ports/checkpoint-store.ts";
import type { Parent } from "../classify.ts";
import { Damage } from "../damage.ts";
import { FILE_MODE, syncFile, syncFolder } from "../durable.ts";
import { isDiskFull } from "../store-error.ts";
import { PACK_SALT_BYTES, packKey } from "../pack.ts";
import { mapColumns, HASH_BYTES } from "../page-map.ts";
import type { PageMap } from "../page-map.ts";
import type { SealLabel } from "../sealed.ts";
import type { BuiltMap } from "../work/build-map.ts";
import { keptPages, storedCount } from "../work/store-pages.ts";
import type { OpenPack, StoredBatch } from "../work/store-pages.ts";
import type { AgentFolder } from "./agent-folder.ts";
import type { Attempt } from "./attempt.ts";
import { isMostlyDead } from "./live-packs.ts";
import { readBatches } from "./read-batches.ts";
import type { StoreContext } from "./store-context.ts";

/** Captured bytes that are with the workers at once; the capture waits beyond it. */
const inFlightBytesMax = 64 * 1024 * 1024;

export interface PageWrite {
  readonly context: StoreContext;
  readonly folder: AgentFolder;
  readonly attempt: Attempt;
  readonly agentKey: Uint8Array;
  readonly label: SealLabel;
  readonly pageCount: number;
  readonly basePath: string | null;
  readonly parent: Parent | null;
  readonly step: StoreStep;
}

export interface WrittenPages {
  readonly map: BuiltMap;
  /** Paths of files written. */
  readonly files: readonly string[];
}

export async function writePages(
  write: PageWrite,
  pages: AsyncIterable<PageBatch>,
): Promise<WrittenPages> {
  const { context, folder, attempt, parent } = write;
  const id = makeId("pk", context.clock.nowMs(), context.clock.randomBytes(10));
  const path = folder.pack(id);
  const salt = new Uint8Array(randomBytes(PACK_SALT_BYTES));
  const counters = new BigInt64Array(new SharedArrayBuffer(16));
  const pack: OpenPack = { path, key: packKey(write.agentKey, id, salt), counters };
  attempt.owns(path);
  await (await open(path, "wx", FILE_MODE)).close();
  const batches = await storeAll(write, pages, parent, pack);
  const dropped = await storeDeadPacksAnew(write, batches, pack);
  const bytes = Number(counters[1]);
  const storedPages = batches.reduce((sum, batch) => sum + storedCount(batch), 0);
  if (storedPages > 0) {
    await syncFile(path);
    await syncFolder(folder.packs);
    await write.step("pack-written");
  } else await rm(path);
  const map = await context.pool.run("buildMap", {
    pageCount: write.pageCount,
    parent: parent?.map ?? null,
    droppedPacks: dropped,
    batches,
    pack: storedPages > 0 ? { id, salt, bytes, storedPages } : null,
    agentKey: write.agentKey,
    label: write.label,
  });
  return { map, files: storedPages > 0 ? [path] : [] };
}

/** Hands each batch to a worker as it comes. The results are in the order of the batches. */
async function storeAll(
  { context, attempt, pageCount, basePath }: PageWrite,
  pages: AsyncIterable<PageBatch>,
  parent: Parent | null,
  pack: OpenPack,
): Promise<StoredBatch[]> {
  const results: StoredBatch[] = [];
  const running = new Set<Promise<void>>();
  const failures: unknown[] = [];
  let inFlight = 0;
  let count = 0;
  try {
    for await (const batch of pages) {
      attempt.needBytes += batch.bytes.length;
      // On a full disk the rest is counted, so that the error can name what is needed.
      if (failures.some(isDiskFull)) continue;
      if (failures.length > 0) break;
      const { indexes, bytes } = batch;
      if (indexes.length === 0) continue;
      const size = bytes.length;
      while (running.size > 0 && inFlight + size > inFlightBytesMax) await Promise.race(running);
      inFlight += size;
      const slot = count++;
      const job: Promise<void> = context.pool
        .run("storePages", { pageCount, indexes, bytes, basePath, parent, pack }, [
          indexes.buffer,
          bytes.buffer,
        ])
        .then(
          ({ spent, ...result }) => {
            context.pool.buffers.give(spent);
            results[slot] = result;
          },
          (error: unknown) => void failures.push(error),
        )
        .finally(() => {
          inFlight -= size;
          running.delete(job);
        });
      running.add(job);
    }
  } finally {
    await Promise.all(running);
  }
  if (failures.length > 0) throw failures.find(isDiskFull) ?? failures[0];
  return results;
}

/**
 * Packs of the parent that this capture left with less than half of their pages alive: the pages
 * that were kept in them are read back, verified, and stored in the new pack. Adds to `batches`.
 */
async function storeDeadPacksAnew(
  write: PageWrite,
  batches: StoredBatch[],
  pack: OpenPack,
): Promise<number[]> {
  const { context, folder, parent } = write;
  if (parent === null) return [];
  const dead = parent.map.packs.flatMap(({ storedPages }, i) => {
    const kept = batches.reduce((sum, batch) => sum + (batch.keptPerPack[i] ?? 0), 0);
    return kept > 0 && isMostlyDead(kept, storedPages) ? [i] : [];
  });
  if (dead.length === 0) return [];
  const part = mapOf(parent.map, batches, new Set(dead));
  const again = readBatches(context.pool, write.agentKey, part, (id) => folder.pack(id as PackId));
  try {
    batches.push(...(await storeAll(write, again, null, pack)));
  } catch (error) {
    if (error instanceof Damage) {
      for (const i of dead) context.damagedPacks.add(parent.map.packs[i]?.id ?? "");
    }
    throw error;
  }
  return dead;
}

/** The map reduced to entries that were kept in these packs. */
function mapOf(map: PageMap, batches: readonly StoredBatch[], packs: ReadonlySet<number>): PageMap {
  const entries: number[] = [];
  for (const batch of batches) {
    for (const { entry } of keptPages(batch)) {
      if (packs.has(map.chunks.pack[map.chunk[entry] ?? 0] ?? -1)) entries.push(entry);
    }
  }
  const columns = mapColumns(entries.length);
  entries.forEach((from, to) => {
    columns.index[to] = map.index[from] ?? 0;
    columns.chunk[to] = map.chunk[from] ?? 0;
    columns.position[to] = map.position[from] ?? 0;
    columns.hash.set(
      map.hash.subarray(from * HASH_BYTES, (from + 1) * HASH_BYTES),
      to * HASH_BYTES,
    );
  });
  return { ...map, ...columns };
}
