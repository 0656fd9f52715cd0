/**
 * Opens a checkpoint for a wake. Verified in this order: the manifest's signature, the digests of page
 * map and devices, the packs' presence and size, the identity of base and layers. Nothing is handed
 * out before all of it held; pages are authenticated chunk by chunk as they are read.
 */
import { lstat } from "node:fs/promises";
import { PAGE_BYTES } from "@perdure/protocol";
import type { AgentId, CheckpointId, Manifest, PackId } from "@perdure/protocol";
import type { OpenedCheckpoint } from "../../core/ports/checkpoint-store.ts";
import type { PageBatch } from "../../core/ports/page.ts";
import type { MemoryBase } from "../../core/ports/substrate.ts";
import { Damage } from "../damage.ts";
import type { PageMap } from "../page-map.ts";
import { storeError } from "../store-error.ts";
import { readManifest } from "./manifest-file.ts";
import { readBatches } from "./read-batches.ts";
import type { StoreContext } from "./store-context.ts";

export async function openCheckpoint(
  context: StoreContext,
  agent: AgentId,
  checkpoint: CheckpointId,
): Promise<OpenedCheckpoint> {
  const { manifest, digest } = await readManifest(context, agent, checkpoint);
  const { memory, devices } = manifest;
  if (memory === undefined || devices === undefined) {
    await verifyLayers(context, manifest);
    return { manifest, digest, state: null };
  }
  const folder = context.folder(agent);
  const agentKey = await context.keyRing.agentKey(folder.key, agent);
  const [map, deviceState, , base] = await inOrder([
    context.pool.run("openMap", {
      path: folder.pageMap(checkpoint),
      ...memory.pageMap,
      agentKey,
      label: { part: "page-map", agent, checkpoint },
      pageCount: memory.base.bytes / PAGE_BYTES,
    }),
    context.pool.run("openDevices", {
      path: folder.devices(checkpoint),
      ...devices,
      agentKey,
      label: { part: "devices", agent, checkpoint },
    }),
    verifyPackSizes(context, agent, memory.packs),
    verifyBase(context, manifest, memory.base),
    verifyLayers(context, manifest),
  ]);
  matchPacks(map, memory.packs);
  let consumed = false;
  return {
    manifest,
    digest,
    state: {
      base,
      devices: deviceState,
      pages: () => {
        if (consumed) throw new Error("The pages of an opened checkpoint can be read once");
        consumed = true;
        return readVerified(context, agent, checkpoint, agentKey, map);
      },
    },
  };
}

/** All at once; of several failures, the first in order is reported. */
async function inOrder<T extends readonly unknown[]>(work: {
  [K in keyof T]: Promise<T[K]>;
}): Promise<T> {
  const settled = await Promise.allSettled(work as readonly Promise<unknown>[]);
  for (const result of settled) if (result.status === "rejected") throw result.reason;
  return settled.map((result) =>
    result.status === "fulfilled" ? result.value : null,
  ) as unknown as T;
}

async function* readVerified(
  context: StoreContext,
  agent: AgentId,
  checkpoint: CheckpointId,
  agentKey: Uint8Array,
  map: PageMap,
): AsyncGenerator<PageBatch, void, undefined> {
  const folder = context.folder(agent);
  try {
    yield* readBatches(context.pool, agentKey, map, (id) => folder.pack(id as PackId));
  } catch (error) {
    if (error instanceof Damage) for (const pack of map.packs) context.damagedPacks.add(pack.id);
    throw storeError(error, `read checkpoint "${checkpoint}"`);
  }
}

type Packs = NonNullable<Manifest["memory"]>["packs"];

async function verifyPackSizes(context: StoreContext, agent: AgentId, packs: Packs): Promise<void> {
  const folder = context.folder(agent);
  for (const { id, bytes } of packs) {
    const stats = await lstat(folder.pack(id)).catch(() => null);
    if (stats?.isFile() !== true) throw new Damage("pack", "presence", "its pack is missing");
    if (stats.size !== bytes) {
      throw new Damage("pack", "size", "its pack does not have the size that was written");
    }
  }
}

/** @throws Damage where map and manifest name different packs */
export function matchPacks(map: PageMap, packs: Packs): void {
  const same =
    map.packs.length === packs.length &&
    packs.every(({ id, bytes }, i) => map.packs[i]?.id === id && map.packs[i].bytes === bytes);
  if (!same)
    throw new Damage("page-map", "format", "its page map and its manifest differ in packs");
}

async function verifyBase(
  context: StoreContext,
  manifest: Manifest,
  { kind, digest, bytes }: NonNullable<Manifest["memory"]>["base"],
): Promise<MemoryBase> {
  if (kind === "zero") return { kind };
  if (kind === "template") {
    const path = await context.findTemplateBase(manifest.tenant, digest);
    if (path === null) throw new Damage("base", "presence", "the base of its template is missing");
    return { kind, digest, path };
  }
  const path = context.folder(manifest.agent).base(digest);
  const file = { part: "base", name: digest, path } as const;
  const check = await context.verified(manifest.agent).verify(file, { digest, bytes });
  if (check !== null) context.checks.add(manifest.agent, path, check);
  return { kind, digest, path };
}

async function verifyLayers(context: StoreContext, manifest: Manifest): Promise<void> {
  const folder = context.folder(manifest.agent);
  const verified = context.verified(manifest.agent);
  for (const layer of manifest.disk.layers) {
    const path = folder.layer(layer.id);
    const check = await verified.verify({ part: "layer", name: layer.id, path }, layer);
    if (check !== null) context.checks.add(manifest.agent, path, check);
  }
}
