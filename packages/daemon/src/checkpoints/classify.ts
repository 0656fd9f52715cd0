/**
 * What a captured page is, compared with the base and the checkpoint before: equal to the base, zero,
 * unchanged since the parent, or to be stored.
 *
 * The order matters. A page that went back to the base's content must become `base` although the
 * parent stored it, and a zeroed page is recorded as zero wherever the base there is not zero: leaving
 * either out would corrupt memory silently.
 */
import { hash } from "node:crypto";
import { readSync } from "node:fs";
import { BLOCK_BYTES, isZero } from "./content-digest.ts";
import { HASH_BYTES, ZERO } from "./page-map.ts";
import type { PageMap } from "./page-map.ts";
import { PAGE_BYTES } from "./page-size.ts";

export const pageKinds = { base: 0, zero: 1, keep: 2, store: 3 } as const;

/** Pages of one batch by kind; positions and hashes are lists in the order of the batch. */
export interface Classified {
  readonly kind: Uint8Array<ArrayBuffer>;
  /** For each `keep`, the entry of the parent's map. */
  readonly keptEntry: Uint32Array<ArrayBuffer>;
  /** For each `store`, its place in the batch. */
  readonly storedAt: Uint32Array<ArrayBuffer>;
  /** For each `store`, `HASH_BYTES`. */
  readonly storedHash: Uint8Array<ArrayBuffer>;
}

/** The parent's map, with the packs whose pages are stored anew because too little of them lives. */
export interface Parent {
  readonly map: PageMap;
  readonly droppedPacks: readonly number[];
}

export function classify(
  indexes: Uint32Array,
  bytes: Uint8Array,
  baseFd: number | null,
  parent: Parent | null,
): Classified {
  const pages = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const kind = new Uint8Array(indexes.length);
  const keptEntry = new Uint32Array(parent === null ? 0 : indexes.length);
  const storedAt = new Uint32Array(indexes.length);
  const storedHash = new Uint8Array(indexes.length * HASH_BYTES);
  let kept = 0;
  let stored = 0;
  const known = parent === null ? null : new ParentPages(parent, indexes[0] ?? 0);
  const base = baseFd === null ? null : new BasePages(baseFd, indexes);
  for (let i = 0; i < indexes.length; i++) {
    const from = i * PAGE_BYTES;
    const zero = isZero(pages.subarray(from, from + PAGE_BYTES));
    if (base === null ? zero : base.equals(i, pages, from)) continue; // kind base
    if (zero) {
      kind[i] = pageKinds.zero;
      continue;
    }
    const digest = hash("sha256", pages.subarray(from, from + PAGE_BYTES), "buffer");
    const entry = known?.find(indexes[i] ?? 0, digest) ?? -1;
    if (entry >= 0) {
      kind[i] = pageKinds.keep;
      keptEntry[kept++] = entry;
    } else {
      kind[i] = pageKinds.store;
      storedHash.set(digest.subarray(0, HASH_BYTES), stored * HASH_BYTES);
      storedAt[stored++] = i;
    }
  }
  return {
    kind,
    keptEntry: keptEntry.slice(0, kept),
    storedAt: storedAt.slice(0, stored),
    storedHash: storedHash.slice(0, stored * HASH_BYTES),
  };
}

/** Reads the base's pages in runs of consecutive indexes, at most a block at a time. */
class BasePages {
  readonly #fd: number;
  readonly #indexes: Uint32Array;
  readonly #block = Buffer.allocUnsafe(BLOCK_BYTES);
  /** Places in the batch that `#block` covers. */
  #from = 0;
  #to = 0;

  constructor(fd: number, indexes: Uint32Array) {
    this.#fd = fd;
    this.#indexes = indexes;
  }

  equals(place: number, pages: Buffer, from: number): boolean {
    if (place >= this.#to) this.#read(place);
    const at = (place - this.#from) * PAGE_BYTES;
    return this.#block.compare(pages, from, from + PAGE_BYTES, at, at + PAGE_BYTES) === 0;
  }

  #read(place: number): void {
    const first = this.#indexes[place] ?? 0;
    let count = 1;
    while (count < BLOCK_BYTES / PAGE_BYTES && this.#indexes[place + count] === first + count) {
      count++;
    }
    const wanted = count * PAGE_BYTES;
    if (readSync(this.#fd, this.#block, 0, wanted, first * PAGE_BYTES) !== wanted) {
      throw new Error("The memory base is shorter than the memory");
    }
    this.#from = place;
    this.#to = place + count;
  }
}

/** Walks the parent's entries beside the batch: both ascend. */
class ParentPages {
  readonly #map: PageMap;
  readonly #dropped: ReadonlySet<number>;
  #entry: number;

  constructor(parent: Parent, firstIndex: number) {
    this.#map = parent.map;
    this.#dropped = new Set(parent.droppedPacks);
    let low = 0;
    let high = parent.map.index.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((parent.map.index[middle] ?? 0) < firstIndex) low = middle + 1;
      else high = middle;
    }
    this.#entry = low;
  }

  /** The entry of this page if the parent stored the same content in a pack that stays, else −1. */
  find(index: number, digest: Uint8Array): number {
    const map = this.#map;
    while ((map.index[this.#entry] ?? Infinity) < index) this.#entry++;
    const entry = this.#entry;
    if (map.index[entry] !== index) return -1;
    const chunk = map.chunk[entry] ?? ZERO;
    if (chunk === ZERO || this.#dropped.has(map.chunks.pack[chunk] ?? -1)) return -1;
    for (let i = 0; i < HASH_BYTES; i++) {
      if (map.hash[entry * HASH_BYTES + i] !== digest[i]) return -1;
    }
    return entry;
  }
}
