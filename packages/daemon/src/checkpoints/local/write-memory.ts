/** The memory of one checkpoint: pages over a base, or a base of the agent's own. */
import { stat } from "node:fs/promises";
import { PAGE_BYTES } from "@perdure/protocol";
import type { AgentId, Digest, Manifest, MemoryBaseFacts } from "@perdure/protocol";
import type { CapturedState, StoreStep } from "../../core/ports/checkpoint-store.ts";
import type { Parent } from "../classify.ts";
import { temporaryPath } from "../durable.ts";
import type { SealLabel } from "../sealed.ts";
import type { BuiltMap } from "../work/build-map.ts";
import type { AgentFolder } from "./agent-folder.ts";
import type { Attempt } from "./attempt.ts";
import { packsToDrop } from "./live-packs.ts";
import { publishBase, writeBaseFile } from "./own-base.ts";
import type { StoreContext } from "./store-context.ts";
import { writePages } from "./write-pages.ts";

const zeroDigest = "0".repeat(64) as Digest;

export interface MemoryWrite {
  readonly context: StoreContext;
  readonly folder: AgentFolder;
  readonly attempt: Attempt;
  readonly agent: AgentId;
  readonly agentKey: Uint8Array;
  readonly label: SealLabel;
  readonly memoryBytes: number;
  readonly parent: Manifest | null;
  readonly step: StoreStep;
}

export interface WrittenMemory {
  readonly base: MemoryBaseFacts;
  readonly map: BuiltMap;
  /** Files that were made. */
  readonly files: readonly string[];
}

export async function writeMemory(
  write: MemoryWrite,
  state: CapturedState,
): Promise<WrittenMemory> {
  if (state.ownBase) return await writeOwnBase(write, state);
  const { folder, memoryBytes: bytes } = write;
  const { kind } = state.base;
  const base = { kind, digest: kind === "zero" ? zeroDigest : state.base.digest, bytes };
  const pageCount = bytes / PAGE_BYTES;
  const basePath = kind === "zero" ? null : state.base.path;
  const parent = await parentMap(write, base);
  const written = await writePages({ ...write, folder, pageCount, basePath, parent }, state.pages);
  return { base, ...written };
}

async function writeOwnBase(write: MemoryWrite, state: CapturedState): Promise<WrittenMemory> {
  const { context, folder, attempt, memoryBytes: bytes } = write;
  const basePath = state.base.kind === "zero" ? null : state.base.path;
  const temporary = temporaryPath(folder.base(zeroDigest));
  attempt.owns(temporary);
  if (basePath !== null) attempt.needBytes += (await stat(basePath)).blocks * 512;
  const source = { bytes, basePath };
  const digest = await writeBaseFile(context.pool, source, temporary, state.pages, (count) => {
    attempt.needBytes += count;
  });
  const path = folder.base(digest);
  const isNew = await publishBase(folder.bases, temporary, digest);
  if (isNew) attempt.owns(path);
  await context.verified(write.agent).record({ part: "base", name: digest, path }, digest);
  await write.step("base-written");
  const map = await context.pool.run("buildMap", {
    pageCount: bytes / PAGE_BYTES,
    parent: null,
    droppedPacks: [],
    batches: [],
    pack: null,
    agentKey: write.agentKey,
    label: write.label,
  });
  return { base: { kind: "own", digest, bytes }, map, files: isNew ? [path] : [] };
}

/** The parent's page map where its pages lie over the same base. A damaged one is done without. */
async function parentMap(write: MemoryWrite, base: MemoryBaseFacts): Promise<Parent | null> {
  const { context, folder, parent, agentKey } = write;
  const memory = parent?.memory;
  if (parent === null || memory === undefined) return null;
  const same = memory.base.digest === base.digest && memory.base.bytes === base.bytes;
  if (!same || memory.packs.length === 0) return null;
  const sizes = new Map<string, number>();
  for (const { id } of memory.packs) {
    const stats = await stat(folder.pack(id)).catch(() => null);
    if (stats !== null) sizes.set(id, stats.size);
  }
  const map = await context.pool
    .run("openMap", {
      path: folder.pageMap(parent.checkpoint),
      ...memory.pageMap,
      agentKey,
      label: { part: "page-map", agent: parent.agent, checkpoint: parent.checkpoint },
      pageCount: base.bytes / PAGE_BYTES,
    })
    .catch(() => null);
  if (map === null) return null;
  const bytes = new Map(map.packs.map((pack) => [pack.id, pack.bytes]));
  const droppedPacks = packsToDrop(
    map,
    (id) => context.damagedPacks.has(id) || sizes.get(id) !== bytes.get(id),
  );
  return { map, droppedPacks };
}
