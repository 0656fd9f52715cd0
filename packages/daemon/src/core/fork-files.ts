/**
 * What a fork is made of on disk, in a folder of its own: it shares nothing that its origin could take away.
 * Layers, and a memory base that is not the template's, get names of its own.
 */
import { PAGE_BYTES, type AgentId } from "@perdure/protocol";
import type { Actor } from "./actor.ts";
import type { CheckpointRow } from "./checkpoint.ts";
import type { SavedState } from "./load.ts";
import { assertRecorded } from "./opened.ts";
import type { OpenedCheckpoint } from "./ports/checkpoint-store.ts";
import type { MemoryBase } from "./ports/substrate.ts";

/** What a fork finds in memory. */
interface ForkMemory {
  readonly base: MemoryBase;
  /** Null: booted. */
  readonly state: SavedState | null;
}

/** Where a fork begins. */
export interface ForkSource {
  readonly origin: Actor;
  readonly row: CheckpointRow;
  /** What all forks of this cut share; null: each reads the checkpoint for itself. */
  readonly shared: { readonly opened: OpenedCheckpoint; readonly memory: ForkMemory } | null;
}

/** Makes ready for so many forks of the checkpoint. Holds the origin's lane until they have their files. */
export async function forkSource(
  origin: Actor,
  row: CheckpointRow,
  copies: number,
): Promise<ForkSource> {
  if (copies < 2) return { origin, row, shared: null };
  const opened = await openRecorded(origin, row);
  const memory = await forkMemory(origin, opened, copies);
  // Pages of an opened checkpoint are read once.
  const isShared = memory.base !== opened.state?.base;
  return { origin, row, shared: isShared ? { opened, memory } : null };
}

/** The checkpoint, for one fork of it. */
export async function openedFork({
  origin,
  row,
  shared,
}: ForkSource): Promise<{ readonly opened: OpenedCheckpoint; readonly memory: ForkMemory }> {
  if (shared !== null) return shared;
  const opened = await openRecorded(origin, row);
  return { opened, memory: await forkMemory(origin, opened, 1) };
}

async function openRecorded(origin: Actor, row: CheckpointRow): Promise<OpenedCheckpoint> {
  const opened = await origin.parts.checkpoints.open(origin.id, row.id);
  assertRecorded(origin, row.id, row, opened);
  return opened;
}

/**
 * Memory for so many forks. Changes that take longer to put into each VM than another VM takes to start are
 * written once, as a base in the origin's folder that all of them map and share; nothing keeps it there, so the
 * lane of the origin is held until each fork has its own name for it.
 */
async function forkMemory(
  origin: Actor,
  opened: OpenedCheckpoint,
  copies: number,
): Promise<ForkMemory> {
  const { state, manifest } = opened;
  if (state === null) return { base: { kind: "zero" }, state };
  const { parts } = origin;
  const changedBytes = (manifest.memory?.storedPages ?? 0) * PAGE_BYTES;
  if (copies < 2 || changedBytes <= parts.ownBaseAboveBytes()) return { base: state.base, state };
  const { memoryBytes } = manifest.substrate.shape;
  const base = await parts.checkpoints.writeBase(origin.id, {
    base: state.base,
    memoryBytes,
    pages: state.pages(),
  });
  return { base, state: { pages: noPages, devices: state.devices } };
}

/** Makes the folder of the fork `owner`. Its memory base, by the fork's own name for it. */
export async function makeForkFolder(
  { id, agent, parts: { checkpoints } }: Actor,
  owner: AgentId,
  { layers }: CheckpointRow,
  base: MemoryBase,
  memoryBytes: number,
): Promise<MemoryBase> {
  await checkpoints.createAgent(owner, agent.tenant);
  for (const layer of layers) {
    await checkpoints.linkLayer(owner, layer, checkpoints.layerPath(id, layer));
  }
  if (base.kind !== "own") return base;
  await checkpoints.linkBase(owner, { ...base, bytes: memoryBytes });
  return { ...base, path: checkpoints.ownBasePath(owner, base.digest) };
}

async function* noPages(): AsyncIterable<never> {
  // It is all in the base.
}
