/**
 * Compact: keeps the chain of disk layers short. Every continuation puts a new layer on top, so that the
 * checkpoint below stays as it was; read through many layers a disk gets slow. Before a cut, layers that
 * are small beside what lies above them are copied into the top. Sizes of what stays at least double
 * downwards, so each byte is copied a logarithmic number of times.
 *
 * The layers that were merged stay whole for as long as a checkpoint names them (I2). A daemon that dies
 * between the merge and its record leaves a record that reads the same: the top holds it all. A checkpoint
 * that failed leaves a record whose top is empty and is not what the machine writes: then nothing is
 * merged, because the machine's top would be taken for one that lies below.
 */
import { PerdureError, type LayerId } from "@perdure/protocol";
import type { Actor } from "./actor.ts";

/** Layers above which a chain is merged at the next cut. */
export const LAYERS_WANTED_MAX = 5;
/** Layers that a merge leaves below the top at most. */
const KEPT_MAX = 4;

/**
 * Merges layers of the awake agent's disk where there are too many. Returns whether files are left that a
 * collection would remove. Failure costs nothing but length.
 */
export async function compactDisk(actor: Actor): Promise<boolean> {
  const { lease } = actor.agent;
  if (lease === null || lease.lowerLayers.length + 1 <= LAYERS_WANTED_MAX) return false;
  const { checkpoints, log } = actor.parts;
  try {
    const sizes = await Promise.all(
      actor.newestLayers().map((layer) => checkpoints.layerBytes(actor.id, layer)),
    );
    const kept = layersToKeep(sizes);
    const below = lease.lowerLayers[kept - 1];
    if (below === undefined || kept === lease.lowerLayers.length) return false;
    const pathOf = (layer: LayerId): string => checkpoints.layerPath(actor.id, layer);
    await actor.requireMachine().mergeLayers(pathOf(below), pathOf(lease.topLayer));
    await actor.save({ lease: { ...lease, lowerLayers: lease.lowerLayers.slice(0, kept) } });
    return true;
  } catch (error) {
    const { message } = PerdureError.from(error);
    log("warn", "Disk layers could not be merged", { agent: actor.id, message });
    return false;
  }
}

/**
 * How many of the lowest layers stay as they are; those between them and the top go into the top.
 *
 * @param sizes bytes of each layer, lowest first, the top last; the lowest always stays
 */
export function layersToKeep(sizes: readonly number[]): number {
  let kept = sizes.length - 1;
  let mergedBytes = sizes.at(-1) ?? 0;
  while (kept > 1) {
    const next = sizes[kept - 1] ?? 0;
    if (kept <= KEPT_MAX && next > 2 * mergedBytes) break;
    mergedBytes += next;
    kept--;
  }
  return kept;
}
