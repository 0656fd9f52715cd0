/**
 * Gc: frees now what cuts would free later: disk layers that can become one do, and what no checkpoint that is
 * kept needs is collected.
 */
import { PerdureError, type Freed } from "@perdure/protocol";
import type { Actor } from "./actor.ts";
import { collect } from "./collect.ts";
import { compactDisk } from "./compact.ts";
import { flattenDisk } from "./flatten.ts";

/**
 * Holds the lane. Layers that cannot be merged are no reason to free nothing: why not is in the answer.
 *
 * @param signal ends what takes long in it
 */
export async function gc(actor: Actor, signal: AbortSignal): Promise<Freed> {
  const before = actor.newestLayers().length;
  if (actor.machine !== null && actor.agent.paused === null) await compactDisk(actor);
  let freedBytes = await collect(actor);
  let notice: string | null = null;
  try {
    freedBytes += (await flattenDisk(actor, signal)) ?? 0;
  } catch (error) {
    notice = `Disk layers stay as they are: ${PerdureError.from(error).message}`;
  }
  const { id, name, storedBytes } = actor.agent;
  const layers = { before, after: actor.newestLayers().length };
  return { agent: id, name, freedBytes, storedBytes, layers, notice };
}
