/**
 * Page cache: what the guest's kernel keeps of files in spare memory. The disk has it anyway, so a sleep
 * does not store it where it is much: the guest drops it first. Little is kept, because the first
 * programs after the wake are quicker with it.
 *
 * How much there is to gain is the lesser of two figures, since neither tells alone: pages that differ
 * from the base and are held by no program (freed ones among them), and the cache as the guest counts
 * it (what is still as in the base among it).
 */
import { PAGE_BYTES, PerdureError } from "@perdure/protocol";
import type { Actor } from "./actor.ts";
import { engineLimits } from "./limit.ts";
import type { GuestLink, GuestStats } from "./ports/guest-link.ts";
import type { Machine } from "./ports/substrate.ts";

/** Drops the cache of an agent that is about to sleep, where that pays. Failure costs nothing but room. */
export async function dropLargeCache(
  actor: Actor,
  machine: Machine,
  link: GuestLink,
): Promise<void> {
  try {
    const [stats, pages] = await Promise.all([link.stats(), machine.changedPages()]);
    if (droppableBytes(stats, pages * PAGE_BYTES) <= engineLimits.cacheKeptBytes) return;
    await link.dropCaches(engineLimits.dropCachesMs);
  } catch (error) {
    const { message } = PerdureError.from(error);
    actor.parts.log("warn", "The page cache could not be dropped", { agent: actor.id, message });
  }
}

/** @param privateBytes memory that differs from the base */
export function droppableBytes(
  { anonBytes, shmemBytes, cachedBytes }: GuestStats,
  privateBytes: number,
): number {
  return Math.min(privateBytes - anonBytes - shmemBytes, cachedBytes - shmemBytes);
}
