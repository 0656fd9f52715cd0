/**
 * What a fork is made of on disk, in a folder of its own: it shares nothing that its origin could take away.
 * Layers, and a memory base that is not the template's, get names of its own.
 */
import { PAGE_BYTES, type AgentId } from "@perdure/protocol";
import type { Actor } from "./actor.ts";
import { atOnce } from "./at-once.ts";
import type { CheckpointRow } from "./checkpoint.ts";
import type { SavedState } from "./load.ts";
import { openRecorded } from "./opened.ts";
import type { OpenedCheckpoint } from "./ports/checkpoint-store.ts";
import type { MemoryBase } from "./ports/substrate.ts";

/** What is found in memory. */
interface ForkMemory {
  readonly base: MemoryBase;
  /** Null: booted. */
  readonly state: SavedState | null;
}

/** A cut from which machines begin: of forks, or the agent's own. */
export interface CutSource {
  readonly origin: Actor;
  readonly row: CheckpointRow;
  /** What was read of it before; null: each machine reads the checkpoint for itself. */
  readonly ready: { readonly opened: OpenedCheckpoint; readonly memory: ForkMemory } | null;
}

/** One machine, from a checkpoint that was opened for it. */
export async function sourceOf(
  origin: Actor,
  row: CheckpointRow,
  opened: OpenedCheckpoint,
): Promise<CutSource> {
  return { origin, row, ready: { opened, memory: await forkMemory(origin, opened, 1) } };
}

/** Makes ready for so many forks of the checkpoint. Holds the origin's lane until they have their files. */
export async function cutSource(
  origin: Actor,
  row: CheckpointRow,
  copies: number,
): Promise<CutSource> {
  if (copies < 2) return { origin, row, ready: null };
  const opened = await openRecorded(origin, row);
  const memory = await forkMemory(origin, opened, copies);
  // Pages of an opened checkpoint are read once.
  const isShared = memory.base !== opened.state?.base;
  return { origin, row, ready: isShared ? { opened, memory } : null };
}

/** The checkpoint, for one fork of it. */
async function openedCut({
  origin,
  row,
  ready,
}: CutSource): Promise<{ readonly opened: OpenedCheckpoint; readonly memory: ForkMemory }> {
  if (ready !== null) return ready;
  const opened = await openRecorded(origin, row);
  return { opened, memory: await forkMemory(origin, opened, 1) };
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

/** What the folder of a fork holds, and where its memory begins. */
export interface ForkFiles {
  readonly opened: OpenedCheckpoint;
  readonly state: SavedState | null;
  /** By the fork's own name for it. */
  readonly base: MemoryBase;
}

/** For a machine of the origin's own: nothing is made. */
export async function filesInPlace(source: CutSource): Promise<ForkFiles> {
  const { opened, memory } = await openedCut(source);
  return { opened, ...memory };
}

/** Makes the folder of the fork `owner`, while the checkpoint is opened. */
export async function makeForkFiles(source: CutSource, owner: AgentId): Promise<ForkFiles> {
  const [{ opened, memory }] = await atOnce([openedCut(source), makeForkFolder(source, owner)]);
  const { memoryBytes } = opened.manifest.substrate.shape;
  const base = await ownBase(source.origin, owner, memory.base, memoryBytes);
  return { opened, state: memory.state, base };
}

async function makeForkFolder({ origin, row }: CutSource, owner: AgentId): Promise<void> {
  const { checkpoints } = origin.parts;
  await checkpoints.createAgent(owner, origin.agent.tenant);
  for (const layer of row.layers) {
    await checkpoints.linkLayer(owner, layer, checkpoints.layerPath(origin.id, layer));
  }
}

async function ownBase(
  { parts: { checkpoints } }: Actor,
  owner: AgentId,
  base: MemoryBase,
  memoryBytes: number,
): Promise<MemoryBase> {
  if (base.kind !== "own") return base;
  await checkpoints.linkBase(owner, { ...base, bytes: memoryBytes });
  return { ...base, path: checkpoints.ownBasePath(owner, base.digest) };
}

async function* noPages(): AsyncIterable<never> {
  // It is all in the base.
}
