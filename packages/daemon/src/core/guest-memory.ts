/**
 * The guest's memory before a sleep, by its own word: a page cache that is most of the delta is dropped,
 * and what is in use afterwards is told. A guest that lies pays for it in room and time alone.
 *
 * The disk has the page cache anyway. Little of it is kept, because the first programs after the wake are
 * quicker with it. How much there is to gain is the lesser of two figures, since neither tells alone:
 * pages that differ from the base and are held by no program (freed ones among them), and the cache as the
 * guest counts it (what is still as in the base among it).
 */
import { PAGE_BYTES, PerdureError } from "@perdure/protocol";
import type { Actor } from "./actor.ts";
import { engineLimits } from "./limit.ts";
import type { GuestLink, GuestMemory } from "./ports/guest-link.ts";
import type { Machine } from "./ports/substrate.ts";

/**
 * Drops the cache of an agent that is about to sleep, where that pays. Returns the bytes that are in use
 * then; null where the guest did not tell. Failure costs nothing but room.
 */
export async function tidyMemory(
  actor: Actor,
  machine: Machine,
  link: GuestLink,
): Promise<number | null> {
  try {
    const [memory, pages] = await Promise.all([link.stats("memory"), machine.changedPages()]);
    if (droppableBytes(memory, pages * PAGE_BYTES) <= engineLimits.cacheKeptBytes) {
      return usedBytes(memory);
    }
    await link.dropCaches(engineLimits.dropCachesMs);
    return usedBytes(await link.stats("memory"));
  } catch (error) {
    const { message } = PerdureError.from(error);
    actor.parts.log("warn", "The guest's memory could not be tidied", { agent: actor.id, message });
    return null;
  }
}

/** @param privateBytes memory that differs from the base */
export function droppableBytes(
  { anonBytes, shmemBytes, cachedBytes }: GuestMemory,
  privateBytes: number,
): number {
  return Math.min(privateBytes - anonBytes - shmemBytes, cachedBytes - shmemBytes);
}

/** Shared memory is counted as cache inside. */
function usedBytes({ anonBytes, cachedBytes, buffersBytes, slabBytes }: GuestMemory): number {
  return anonBytes + cachedBytes + (buffersBytes ?? 0) + (slabBytes ?? 0);
}
