/**
 * Job: put together the page map of a checkpoint from what became of each batch, and seal it.
 *
 * Chunks and packs of the parent come along only where a kept page still lies in them.
 */
import { hash } from "node:crypto";
import { pageKinds } from "../classify.ts";
import { CHUNK_PAGES_MAX, TAG_BYTES } from "../pack.ts";
import { encodePageMap } from "../page-map-file.ts";
import { HASH_BYTES, ZERO, chunkColumns, mapColumns } from "../page-map.ts";
import type { MapPack, PageMap } from "../page-map.ts";
import { seal } from "../sealed.ts";
import type { SealLabel } from "../sealed.ts";
import type { StoredBatch, WrittenChunk } from "./store-pages.ts";

export interface BuildMapInput {
  readonly pageCount: number;
  readonly parent: PageMap | null;
  /** Kept pages of these packs are in a later batch again, stored anew. */
  readonly droppedPacks: readonly number[];
  readonly batches: readonly StoredBatch[];
  /** The pack that this checkpoint wrote. */
  readonly pack: MapPack | null;
  readonly agentKey: Uint8Array;
  readonly label: SealLabel;
}

export interface BuiltMap {
  readonly file: Uint8Array<ArrayBuffer>;
  readonly digest: string;
  readonly zeroPages: number;
  readonly storedPages: number;
  readonly packs: readonly { readonly id: string; readonly bytes: number }[];
}

export function buildMap(input: BuildMapInput): BuiltMap {
  const map = assemble(input);
  const file = seal(input.agentKey, input.label, encodePageMap(map));
  let zeroPages = 0;
  for (const chunk of map.chunk) if (chunk === ZERO) zeroPages++;
  return {
    file,
    digest: hash("sha256", file),
    zeroPages,
    storedPages: map.index.length - zeroPages,
    packs: map.packs.map(({ id, bytes }) => ({ id, bytes })),
  };
}

/** Where an entry comes from: a chunk of the parent's, or one that was just written. */
type Chunk = { readonly parent: number } | { readonly written: WrittenChunk };

/** The map as columns; exported for its test. */
export function assemble(input: Omit<BuildMapInput, "agentKey" | "label">): PageMap {
  const { parent, batches } = input;
  const dropped = new Set(input.droppedPacks);
  const chunks: Chunk[] = [];
  const parentChunks = new Map<number, number>();
  const entriesMax = batches.reduce((sum, batch) => sum + batch.indexes.length, 0);
  const draft = mapColumns(entriesMax);
  let entries = 0;
  const add = (
    index: number,
    chunk: number,
    position: number,
    pageHash: Uint8Array | null,
  ): void => {
    draft.index[entries] = index;
    draft.chunk[entries] = chunk;
    draft.position[entries] = position;
    if (pageHash !== null) draft.hash.set(pageHash, entries * HASH_BYTES);
    entries++;
  };
  for (const batch of batches) {
    const firstChunk = chunks.length;
    for (const written of batch.chunks) chunks.push({ written });
    let kept = 0;
    let stored = 0;
    for (let i = 0; i < batch.indexes.length; i++) {
      const index = batch.indexes[i] ?? 0;
      const kind = batch.kind[i];
      if (kind === pageKinds.zero) add(index, ZERO, 0, null);
      else if (kind === pageKinds.store) {
        const chunk = firstChunk + Math.floor(stored / CHUNK_PAGES_MAX);
        add(index, chunk, stored % CHUNK_PAGES_MAX, pick(batch.storedHash, stored));
        stored++;
      } else if (kind === pageKinds.keep && parent !== null) {
        const entry = batch.keptEntry[kept++] ?? 0;
        const from = parent.chunk[entry] ?? ZERO;
        if (dropped.has(parent.chunks.pack[from] ?? -1)) continue;
        let chunk = parentChunks.get(from);
        if (chunk === undefined) {
          chunk = chunks.push({ parent: from }) - 1;
          parentChunks.set(from, chunk);
        }
        add(index, chunk, parent.position[entry] ?? 0, pick(parent.hash, entry));
      }
    }
  }
  return { pageCount: input.pageCount, ...ascending(draft, entries), ...table(input, chunks) };
}

function pick(hashes: Uint8Array, at: number): Uint8Array {
  return hashes.subarray(at * HASH_BYTES, (at + 1) * HASH_BYTES);
}

type Columns = ReturnType<typeof mapColumns>;

/** The first `entries` entries by index; a copy only where pages were stored anew out of turn. */
function ascending(draft: Columns, entries: number): Columns {
  const index = draft.index.subarray(0, entries);
  if (index.every((value, i) => i === 0 || value > (index[i - 1] ?? 0))) {
    return {
      index,
      chunk: draft.chunk.subarray(0, entries),
      position: draft.position.subarray(0, entries),
      hash: draft.hash.subarray(0, entries * HASH_BYTES),
    };
  }
  const order = Uint32Array.from({ length: entries }, (_, i) => i);
  order.sort((a, b) => (index[a] ?? 0) - (index[b] ?? 0));
  const sorted = mapColumns(entries);
  order.forEach((from, to) => {
    sorted.index[to] = draft.index[from] ?? 0;
    sorted.chunk[to] = draft.chunk[from] ?? ZERO;
    sorted.position[to] = draft.position[from] ?? 0;
    sorted.hash.set(pick(draft.hash, from), to * HASH_BYTES);
  });
  return sorted;
}

/** The tables of packs and chunks; the pack just written comes last. */
function table(
  { parent, pack }: Pick<BuildMapInput, "parent" | "pack">,
  list: readonly Chunk[],
): Pick<PageMap, "packs" | "chunks"> {
  const packs: MapPack[] = [];
  const parentPacks = new Map<number, number>();
  const chunks = chunkColumns(list.length);
  const written: number[] = [];
  list.forEach((chunk, i) => {
    if ("written" in chunk) {
      const { number, offset, length, codec, pages, tag } = chunk.written;
      chunks.number[i] = number;
      chunks.offset[i] = offset;
      chunks.length[i] = length;
      chunks.codec[i] = codec;
      chunks.pages[i] = pages;
      chunks.tag.set(tag, i * TAG_BYTES);
      written.push(i);
      return;
    }
    if (parent === null) return;
    const from = chunk.parent;
    const parentPack = parent.chunks.pack[from] ?? 0;
    let to = parentPacks.get(parentPack);
    if (to === undefined) {
      const known = parent.packs[parentPack];
      if (known === undefined) throw new Error("The parent's page map lacks a pack");
      to = packs.push(known) - 1;
      parentPacks.set(parentPack, to);
    }
    chunks.pack[i] = to;
    chunks.number[i] = parent.chunks.number[from] ?? 0;
    chunks.offset[i] = parent.chunks.offset[from] ?? 0;
    chunks.length[i] = parent.chunks.length[from] ?? 0;
    chunks.codec[i] = parent.chunks.codec[from] ?? 0;
    chunks.pages[i] = parent.chunks.pages[from] ?? 0;
    chunks.tag.set(
      parent.chunks.tag.subarray(from * TAG_BYTES, (from + 1) * TAG_BYTES),
      i * TAG_BYTES,
    );
  });
  if (pack !== null) {
    const to = packs.push(pack) - 1;
    for (const i of written) chunks.pack[i] = to;
  }
  return { packs, chunks };
}
