/**
 * The page map as bytes: the body of a sealed file (`sealed.ts`); v = varint, s = zigzag varint.
 *
 *   "PM01" | v pages | v packs { id 29 | salt 16 | v bytes | v stored pages }
 *   v chunks { v pack | v number | v offset | v length | codec 1 | v pages | tag 16 }
 *   runs { v length×4 + kind | kind stored: s chunk − previous run's, first position 1 }
 *   hashes 16 × stored pages
 *
 * Kinds: 0 base, 1 zero, 2 stored at consecutive positions of one chunk. Runs cover every page once.
 */
import { ByteReader } from "./byte-reader.ts";
import { ByteWriter } from "./byte-writer.ts";
import { Damage } from "./damage.ts";
import { CHUNK_BYTES_MAX, CHUNK_PAGES_MAX, PACK_SALT_BYTES, TAG_BYTES, codecs } from "./pack.ts";
import { HASH_BYTES, PACKS_MAX, ZERO, chunkColumns, mapColumns } from "./page-map.ts";
import type { MapChunks, MapPack, PageMap } from "./page-map.ts";
import { PAGE_BYTES, PAGE_COUNT_MAX } from "./page-size.ts";

const magic = "PM01";
const packIdBytes = 29;
const kinds = { base: 0, zero: 1, stored: 2 } as const;

/** Bytes that the body of a map of this many pages can have at most. */
export function pageMapBytesMax(pageCount: number): number {
  return 4096 + pageCount * (HASH_BYTES + TAG_BYTES + 40);
}

export function encodePageMap(map: PageMap): Uint8Array<ArrayBuffer> {
  const out = new ByteWriter(4096 + map.index.length * (HASH_BYTES + 4));
  out.ascii(magic);
  out.varint(map.pageCount);
  out.varint(map.packs.length);
  for (const pack of map.packs) {
    out.ascii(pack.id);
    out.bytes(pack.salt);
    out.varint(pack.bytes);
    out.varint(pack.storedPages);
  }
  const { chunks } = map;
  out.varint(chunks.count);
  for (let i = 0; i < chunks.count; i++) {
    out.varint(chunks.pack[i] ?? 0);
    out.varint(chunks.number[i] ?? 0);
    out.varint(chunks.offset[i] ?? 0);
    out.varint(chunks.length[i] ?? 0);
    out.byte(chunks.codec[i] ?? 0);
    out.varint(chunks.pages[i] ?? 0);
    out.bytes(chunks.tag.subarray(i * TAG_BYTES, (i + 1) * TAG_BYTES));
  }
  writeRuns(out, map);
  for (let entry = 0; entry < map.index.length; entry++) {
    if (map.chunk[entry] === ZERO) continue;
    out.bytes(map.hash.subarray(entry * HASH_BYTES, (entry + 1) * HASH_BYTES));
  }
  return out.finish();
}

function writeRuns(out: ByteWriter, map: PageMap): void {
  const { index, chunk, position } = map;
  let page = 0;
  let previous = 0;
  for (let entry = 0; entry < index.length;) {
    const first = index[entry] ?? 0;
    const where = chunk[entry] ?? ZERO;
    const start = position[entry] ?? 0;
    if (first > page) out.varint((first - page) * 4 + kinds.base);
    let length = 1;
    while (
      index[entry + length] === first + length &&
      chunk[entry + length] === where &&
      (where === ZERO || position[entry + length] === start + length)
    ) {
      length++;
    }
    out.varint(length * 4 + (where === ZERO ? kinds.zero : kinds.stored));
    if (where !== ZERO) {
      out.signed(where - previous);
      out.byte(start);
      previous = where;
    }
    page = first + length;
    entry += length;
  }
  if (page < map.pageCount) out.varint((map.pageCount - page) * 4 + kinds.base);
}

function damaged(message: string): Damage {
  return new Damage("page-map", "format", `its page map is malformed: ${message}`);
}

/** @throws Damage for anything that `encodePageMap` would not have written for `pageCount` pages */
export function decodePageMap(body: Uint8Array, pageCount: number): PageMap {
  const reader = new ByteReader(body, damaged);
  if (reader.ascii(magic.length) !== magic) throw damaged("it does not begin as one");
  if (reader.varint(PAGE_COUNT_MAX, "the page count") !== pageCount) {
    throw damaged("it is for another memory size");
  }
  const packs = readPacks(reader);
  const chunks = readChunks(reader, packs, pageCount);
  const runs = readRuns(reader, chunks, pageCount);
  const columns = mapColumns(runs.entries);
  let at = 0;
  for (const run of runs.list) {
    if (run.chunk !== ZERO) {
      columns.hash.set(reader.bytes(run.length * HASH_BYTES), at * HASH_BYTES);
    }
    for (let i = 0; i < run.length; i++, at++) {
      columns.index[at] = run.page + i;
      columns.chunk[at] = run.chunk;
      if (run.chunk !== ZERO) columns.position[at] = run.position + i;
    }
  }
  reader.end();
  return { pageCount, packs, chunks, ...columns };
}

function readPacks(reader: ByteReader): MapPack[] {
  const packs: MapPack[] = [];
  const count = reader.varint(PACKS_MAX, "the number of packs");
  for (let i = 0; i < count; i++) {
    const id = reader.ascii(packIdBytes);
    if (!/^pk_[0-9a-hjkmnp-tv-z]{26}$/.test(id)) throw damaged("a pack has no valid id");
    packs.push({
      id,
      salt: reader.bytes(PACK_SALT_BYTES).slice(),
      bytes: reader.varint(Number.MAX_SAFE_INTEGER, "a pack's size"),
      storedPages: reader.varint(PAGE_COUNT_MAX, "a pack's page count"),
    });
  }
  return packs;
}

function readChunks(reader: ByteReader, packs: readonly MapPack[], pageCount: number): MapChunks {
  const count = reader.varint(pageCount, "the number of chunks");
  if (count * TAG_BYTES > reader.remaining) throw damaged("it ends within the chunks");
  const chunks = chunkColumns(count);
  for (let i = 0; i < count; i++) {
    const pack = packs[(chunks.pack[i] = reader.varint(PACKS_MAX - 1, "a chunk's pack"))];
    if (pack === undefined) throw damaged("a chunk has no pack");
    chunks.number[i] = reader.varint(PAGE_COUNT_MAX, "a chunk's number");
    const offset = (chunks.offset[i] = reader.varint(pack.bytes, "a chunk's offset"));
    const length = (chunks.length[i] = reader.varint(CHUNK_BYTES_MAX, "a chunk's length"));
    if (offset + length > pack.bytes) throw damaged("a chunk ends after its pack");
    const codec = (chunks.codec[i] = reader.byte());
    const pages = (chunks.pages[i] = reader.varint(CHUNK_PAGES_MAX, "a chunk's page count"));
    if (pages === 0 || length === 0) throw damaged("a chunk is empty");
    if (codec !== codecs.zstd && (codec !== codecs.raw || length !== pages * PAGE_BYTES)) {
      throw damaged("a chunk's codec does not fit it");
    }
    chunks.tag.set(reader.bytes(TAG_BYTES), i * TAG_BYTES);
  }
  return chunks;
}

interface Run {
  readonly page: number;
  readonly length: number;
  readonly chunk: number;
  readonly position: number;
}

function readRuns(
  reader: ByteReader,
  chunks: MapChunks,
  pageCount: number,
): { entries: number; list: Run[] } {
  const list: Run[] = [];
  let entries = 0;
  let page = 0;
  let previous = 0;
  while (page < pageCount) {
    const head = reader.varint(pageCount * 4 + 3, "a run");
    const length = Math.floor(head / 4);
    const kind = head % 4;
    if (length === 0 || page + length > pageCount) throw damaged("a run has a wrong length");
    if (kind === kinds.zero) list.push({ page, length, chunk: ZERO, position: 0 });
    else if (kind === kinds.stored) {
      const chunk = previous + reader.signed(pageCount, "a run's chunk");
      const position = reader.byte();
      if (position + length > (chunks.pages[chunk] ?? 0)) throw damaged("a run leaves its chunk");
      list.push({ page, length, chunk, position });
      previous = chunk;
    } else if (kind !== kinds.base) throw damaged("a run has an unknown kind");
    if (kind !== kinds.base) entries += length;
    page += length;
  }
  return { entries, list };
}
