/**
 * Removes what no kept checkpoint needs. The set of what is needed is complete before the first file
 * goes: a kept manifest that cannot be read and verified stops the collection, because nobody knows
 * what it names. A checkpoint's manifest goes before the parts, so a crash in between leaves parts
 * without a manifest, which the next collection removes.
 */
import { lstat, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import type { AgentId, CheckpointId, Digest, LayerId } from "@perdure/protocol";
import { syncFolder } from "../durable.ts";
import { readManifest } from "./manifest-file.ts";
import type { StoreContext } from "./store-context.ts";

export async function collectAgent(
  context: StoreContext,
  agent: AgentId,
  keep: readonly CheckpointId[],
  keepLayers: readonly LayerId[],
  keepBases: readonly Digest[],
): Promise<number> {
  const folder = context.folder(agent);
  const checkpoints = new Set<string>(keep);
  const packs = new Set<string>();
  const bases = new Set<string>(keepBases);
  const layers = new Set<string>(keepLayers.map((id) => `${id}.qcow2`));
  for (const id of keep) {
    const { memory, disk } = (await readManifest(context, agent, id)).manifest;
    for (const pack of memory?.packs ?? []) packs.add(pack.id);
    if (memory?.base.kind === "own") bases.add(memory.base.digest);
    for (const layer of disk.layers) layers.add(`${layer.id}.qcow2`);
  }
  let freed = 0;
  for (const name of await unneeded(folder.checkpoints, checkpoints)) {
    const manifest = join(folder.checkpoints, name, "manifest.json");
    freed += await allocatedBytes(manifest);
    await rm(manifest, { force: true });
  }
  freed += await removeAll(folder.checkpoints, checkpoints);
  freed += await removeAll(folder.packs, packs);
  const files = context.verified(agent);
  const goneBases = await unneeded(folder.bases, bases);
  const goneLayers = await unneeded(folder.layers, layers);
  freed += await removeAll(folder.bases, bases);
  freed += await removeAll(folder.layers, layers);
  await files.forget([
    ...goneBases.map((name) => ({ part: "base" as const, name })),
    ...goneLayers.map((name) => ({ part: "layer" as const, name: name.replace(/\.qcow2$/, "") })),
  ]);
  freed += await removeLeftovers(folder.path);
  return freed;
}

async function unneeded(path: string, needed: ReadonlySet<string>): Promise<string[]> {
  return (await readdir(path)).filter((name) => !needed.has(name));
}

async function removeAll(path: string, needed: ReadonlySet<string>): Promise<number> {
  const names = await unneeded(path, needed);
  let freed = 0;
  for (const name of names) {
    freed += await allocatedBytes(join(path, name));
    await rm(join(path, name), { recursive: true, force: true });
  }
  if (names.length > 0) await syncFolder(path);
  return freed;
}

/** Unfinished files of the agent's folder itself. */
async function removeLeftovers(path: string): Promise<number> {
  const known = new Set((await readdir(path)).filter((name) => !name.startsWith(".")));
  return await removeAll(path, known);
}

/**
 * Allocated bytes of a file or a tree. A file with a second name elsewhere (a template's layer, a base
 * shared with a fork) is not the agent's alone and counts as nothing.
 */
export async function allocatedBytes(path: string): Promise<number> {
  const stats = await lstat(path).catch((error: unknown) => {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw error;
  });
  if (stats === null) return 0;
  const own = stats.isFile() && stats.nlink > 1 ? 0 : stats.blocks * 512;
  if (!stats.isDirectory()) return own;
  let sum = own;
  for (const name of await readdir(path)) sum += await allocatedBytes(join(path, name));
  return sum;
}
