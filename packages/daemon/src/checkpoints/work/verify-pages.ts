/**
 * Job: read a range of a page map's entries and compare each stored page with its digest in the map.
 * Nothing is handed back but which packs are damaged, and how.
 */
import { hash } from "node:crypto";
import { Damage } from "../damage.ts";
import type { Check } from "../damage.ts";
import { HASH_BYTES, ZERO } from "../page-map.ts";
import type { PageMap } from "../page-map.ts";
import { PAGE_BYTES } from "../page-size.ts";
import { ChunkReader } from "./read-pages.ts";
import type { PackSource } from "./read-pages.ts";

export interface VerifyPagesInput {
  readonly map: PageMap;
  /** By index into `map.packs`. */
  readonly packs: readonly PackSource[];
  /** Entries `from` up to but not including `to`. */
  readonly from: number;
  readonly to: number;
}

export interface DamagedPack {
  /** Index into `map.packs`. */
  readonly pack: number;
  readonly check: Check;
  readonly message: string;
}

/** The first damage of each pack. */
export function verifyPages({ map, packs, from, to }: VerifyPagesInput): DamagedPack[] {
  const damaged = new Map<number, DamagedPack>();
  const reader = new ChunkReader(map, packs);
  try {
    for (let entry = from; entry < to; entry++) {
      const chunk = map.chunk[entry] ?? ZERO;
      if (chunk === ZERO) continue;
      const pack = map.chunks.pack[chunk] ?? 0;
      if (damaged.has(pack)) continue;
      try {
        verifyPage(map, entry, reader.read(chunk));
      } catch (error) {
        if (!(error instanceof Damage)) throw error;
        damaged.set(pack, { pack, check: error.check, message: error.message });
      }
    }
  } finally {
    reader.close();
  }
  return [...damaged.values()];
}

/** @throws Damage */
function verifyPage(map: PageMap, entry: number, pages: Uint8Array): void {
  const at = (map.position[entry] ?? 0) * PAGE_BYTES;
  const digest = hash("sha256", pages.subarray(at, at + PAGE_BYTES), "buffer");
  const known = map.hash.subarray(entry * HASH_BYTES, (entry + 1) * HASH_BYTES);
  if (digest.subarray(0, HASH_BYTES).equals(known)) return;
  const index = map.index[entry] ?? 0;
  throw new Damage("pack", "digest", `page ${index} does not have the digest in its page map`);
}
