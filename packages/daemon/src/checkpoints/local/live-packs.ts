/**
 * Which packs of the parent a new checkpoint refers to. One with less than half of its stored pages
 * alive is not worth its room: its live pages are stored anew. At most `PACKS_MAX` packs, the new one
 * included; the ones with the fewest live pages go first.
 */
import { PACKS_MAX, ZERO } from "../page-map.ts";
import type { PageMap } from "../page-map.ts";

export function livePages(map: PageMap): number[] {
  const live = map.packs.map(() => 0);
  for (const chunk of map.chunk) {
    if (chunk === ZERO) continue;
    const pack = map.chunks.pack[chunk] ?? 0;
    live[pack] = (live[pack] ?? 0) + 1;
  }
  return live;
}

export function isMostlyDead(livePageCount: number, storedPages: number): boolean {
  return livePageCount * 2 < storedPages;
}

/** Indexes of packs that a child of `map` must not refer to. Its live pages only get fewer. */
export function packsToDrop(map: PageMap, unusable: (id: string) => boolean): number[] {
  const live = livePages(map);
  const dropped = new Set<number>();
  map.packs.forEach((pack, i) => {
    if (unusable(pack.id) || isMostlyDead(live[i] ?? 0, pack.storedPages)) dropped.add(i);
  });
  const kept = map.packs.map((_, i) => i).filter((i) => !dropped.has(i));
  kept.sort((a, b) => (live[b] ?? 0) - (live[a] ?? 0));
  for (const i of kept.slice(PACKS_MAX - 1)) dropped.add(i);
  return [...dropped];
}
