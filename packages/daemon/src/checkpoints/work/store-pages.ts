/**
 * Job: classify one batch of captured pages and append those to be stored to the pack.
 *
 * Several workers append to one pack at once. Chunk numbers (the nonces) and offsets are handed out
 * by atomic addition in memory that they share, so no two ever use the same, and nothing but
 * hashes and tags travels back to the main thread.
 */
import { closeSync, constants, openSync, writeSync } from "node:fs";
import { classify, pageKinds } from "../classify.ts";
import type { Parent } from "../classify.ts";
import { CHUNK_PAGES_MAX, encodeChunk } from "../pack.ts";
import { PAGE_BYTES } from "../page-size.ts";

/** The pack being written. `counters` holds the next chunk number and the next offset. */
export interface OpenPack {
  readonly path: string;
  readonly key: Uint8Array;
  readonly counters: BigInt64Array<SharedArrayBuffer>;
}

export interface StorePagesInput {
  readonly pageCount: number;
  readonly indexes: Uint32Array<ArrayBuffer>;
  readonly bytes: Uint8Array<ArrayBuffer>;
  /** Null for the `zero` base. */
  readonly basePath: string | null;
  readonly parent: Parent | null;
  readonly pack: OpenPack;
}

export interface WrittenChunk {
  readonly number: number;
  readonly offset: number;
  readonly length: number;
  readonly codec: number;
  readonly pages: number;
  readonly tag: Uint8Array;
}

/** What became of a batch. Stored pages fill `chunks` in order, 64 to each but the last. */
export interface StoredBatch {
  readonly indexes: Uint32Array<ArrayBuffer>;
  readonly kind: Uint8Array<ArrayBuffer>;
  readonly keptEntry: Uint32Array<ArrayBuffer>;
  /** Kept pages by the parent's pack. */
  readonly keptPerPack: readonly number[];
  readonly storedHash: Uint8Array<ArrayBuffer>;
  readonly chunks: readonly WrittenChunk[];
}

/** Besides what became of the batch: the buffer of its bytes, which nobody needs any more. */
export function storePages(input: StorePagesInput): StoredBatch & { readonly spent: ArrayBuffer } {
  checkBatch(input);
  const { indexes, bytes, parent } = input;
  const baseFd = input.basePath === null ? null : openSync(input.basePath, constants.O_RDONLY);
  let found;
  try {
    found = classify(indexes, bytes, baseFd, parent);
  } finally {
    if (baseFd !== null) closeSync(baseFd);
  }
  const keptPerPack = new Array<number>(parent?.map.packs.length ?? 0).fill(0);
  for (const entry of found.keptEntry) {
    const pack = parent?.map.chunks.pack[parent.map.chunk[entry] ?? 0] ?? 0;
    keptPerPack[pack] = (keptPerPack[pack] ?? 0) + 1;
  }
  const chunks = found.storedAt.length === 0 ? [] : append(input.pack, bytes, found.storedAt);
  return {
    indexes,
    kind: found.kind,
    keptEntry: found.keptEntry,
    keptPerPack,
    storedHash: found.storedHash,
    chunks,
    spent: bytes.buffer,
  };
}

/** The substrate's side of the bargain (`PageBatch`): anything else would be stored as wrong memory. */
function checkBatch({ indexes, bytes, pageCount }: StorePagesInput): void {
  let ascending = bytes.length === indexes.length * PAGE_BYTES;
  for (let i = 1; i < indexes.length; i++) {
    ascending &&= (indexes[i] ?? 0) > (indexes[i - 1] ?? 0);
  }
  if (!ascending || (indexes.at(-1) ?? 0) >= pageCount) {
    throw new Error("A captured page batch is not in order or leaves the memory");
  }
}

function append(pack: OpenPack, bytes: Uint8Array, storedAt: Uint32Array): WrittenChunk[] {
  const chunks: WrittenChunk[] = [];
  const gathered = new Uint8Array(CHUNK_PAGES_MAX * PAGE_BYTES);
  const fd = openSync(pack.path, constants.O_WRONLY);
  try {
    for (let first = 0; first < storedAt.length; first += CHUNK_PAGES_MAX) {
      const places = storedAt.subarray(first, first + CHUNK_PAGES_MAX);
      const number = Number(Atomics.add(pack.counters, 0, 1n));
      const plain = gather(bytes, places, gathered);
      const { codec, tag, text } = encodeChunk(pack.key, number, plain);
      const offset = Number(Atomics.add(pack.counters, 1, BigInt(text.length)));
      writeAll(fd, text, offset);
      chunks.push({ number, offset, length: text.length, codec, pages: places.length, tag });
    }
  } finally {
    closeSync(fd);
  }
  return chunks;
}

/** The pages at these places side by side; a view where they already are. */
function gather(bytes: Uint8Array, places: Uint32Array, room: Uint8Array): Uint8Array {
  const first = places[0] ?? 0;
  const last = places.at(-1) ?? 0;
  if (last - first === places.length - 1) {
    return bytes.subarray(first * PAGE_BYTES, (last + 1) * PAGE_BYTES);
  }
  places.forEach((place, i) => {
    room.set(bytes.subarray(place * PAGE_BYTES, (place + 1) * PAGE_BYTES), i * PAGE_BYTES);
  });
  return room.subarray(0, places.length * PAGE_BYTES);
}

export function writeAll(fd: number, bytes: Uint8Array, offset: number): void {
  for (let done = 0; done < bytes.length;) {
    done += writeSync(fd, bytes, done, bytes.length - done, offset + done);
  }
}

/** Stored pages of a batch. */
export function storedCount(batch: StoredBatch): number {
  return batch.chunks.reduce((sum, chunk) => sum + chunk.pages, 0);
}

/** The parent's entries that a batch kept, with the pages' indexes, in order. */
export function* keptPages(batch: StoredBatch): Generator<{ index: number; entry: number }> {
  let kept = 0;
  for (let i = 0; i < batch.indexes.length; i++) {
    if (batch.kind[i] !== pageKinds.keep) continue;
    yield { index: batch.indexes[i] ?? 0, entry: batch.keptEntry[kept++] ?? 0 };
  }
}
