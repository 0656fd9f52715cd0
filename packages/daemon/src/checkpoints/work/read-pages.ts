/**
 * Job: read a range of a page map's entries from the packs, each chunk authenticated before any of
 * its pages is handed out.
 *
 * Within a pack, chunks follow each other in the order of page indexes (twice over where a write
 * stored pages of older packs anew), so a few decoded chunks are all that must be remembered.
 */
import { closeSync, constants, fstatSync, openSync, readSync } from "node:fs";
import { Damage } from "../damage.ts";
import { CHUNK_BYTES_MAX, TAG_BYTES, decodeChunk } from "../pack.ts";
import { PACKS_MAX, ZERO } from "../page-map.ts";
import type { PageMap } from "../page-map.ts";
import { PAGE_BYTES } from "../page-size.ts";

export interface PackSource {
  readonly path: string;
  readonly key: Uint8Array;
}

export interface ReadPagesInput {
  readonly map: PageMap;
  /** By index into `map.packs`. */
  readonly packs: readonly PackSource[];
  /** Entries `from` up to but not including `to`. */
  readonly from: number;
  readonly to: number;
  /** Room for the pages' bytes; not necessarily zero. */
  readonly into: ArrayBuffer;
}

export interface ReadPages {
  readonly indexes: Uint32Array<ArrayBuffer>;
  readonly bytes: Uint8Array<ArrayBuffer>;
}

const rememberedMax = 2 * PACKS_MAX;

export function readPages({ map, packs, from, to, into }: ReadPagesInput): ReadPages {
  const bytes = new Uint8Array(into, 0, (to - from) * PAGE_BYTES);
  const reader = new ChunkReader(map, packs);
  try {
    for (let entry = from; entry < to;) {
      const chunk = map.chunk[entry] ?? ZERO;
      const position = map.position[entry] ?? 0;
      let length = 1;
      while (
        entry + length < to &&
        map.chunk[entry + length] === chunk &&
        (chunk === ZERO || map.position[entry + length] === position + length)
      ) {
        length++;
      }
      const at = (entry - from) * PAGE_BYTES;
      if (chunk === ZERO) bytes.fill(0, at, at + length * PAGE_BYTES);
      else {
        const pages = reader.read(chunk);
        bytes.set(pages.subarray(position * PAGE_BYTES, (position + length) * PAGE_BYTES), at);
      }
      entry += length;
    }
  } finally {
    reader.close();
  }
  return { indexes: new Uint32Array(map.index.subarray(from, to)), bytes };
}

/** Reads chunks of the packs of a map, each authenticated before it is handed out. */
export class ChunkReader {
  readonly #map: PageMap;
  readonly #packs: readonly PackSource[];
  readonly #fds = new Map<number, number>();
  readonly #decoded = new Map<number, Uint8Array>();
  readonly #text = Buffer.allocUnsafe(CHUNK_BYTES_MAX);

  constructor(map: PageMap, packs: readonly PackSource[]) {
    this.#map = map;
    this.#packs = packs;
  }

  /** The pages of a chunk, decoded once while it is in use. */
  read(chunk: number): Uint8Array {
    const known = this.#decoded.get(chunk);
    if (known !== undefined) return known;
    const { chunks } = this.#map;
    const pack = chunks.pack[chunk] ?? 0;
    const key = this.#packs[pack]?.key ?? new Uint8Array(32);
    const length = chunks.length[chunk] ?? 0;
    const text = this.#text.subarray(0, length);
    if (readSync(this.#fd(pack), text, 0, length, chunks.offset[chunk] ?? 0) !== length) {
      throw new Damage("pack", "size", "its pack is too short");
    }
    const pages = decodeChunk(
      key,
      chunks.number[chunk] ?? 0,
      {
        codec: chunks.codec[chunk] ?? 0,
        tag: chunks.tag.slice(chunk * TAG_BYTES, (chunk + 1) * TAG_BYTES),
        text,
      },
      (chunks.pages[chunk] ?? 0) * PAGE_BYTES,
    );
    const oldest = this.#decoded.keys().next();
    if (this.#decoded.size >= rememberedMax && oldest.done !== true) {
      this.#decoded.delete(oldest.value);
    }
    this.#decoded.set(chunk, pages);
    return pages;
  }

  close(): void {
    for (const fd of this.#fds.values()) closeSync(fd);
  }

  #fd(pack: number): number {
    const known = this.#fds.get(pack);
    if (known !== undefined) return known;
    const fd = openPart("pack", this.#packs[pack]?.path ?? "");
    this.#fds.set(pack, fd);
    if (fstatSync(fd).size !== this.#map.packs[pack]?.bytes) {
      throw new Damage("pack", "size", "its pack does not have the size that was written");
    }
    return fd;
  }
}

/** Opens a part for reading; a link is not followed, a missing file is damage. */
export function openPart(part: Damage["part"], path: string): number {
  try {
    return openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === "ENOENT") throw new Damage(part, "presence", `its ${part} is missing`);
    if (code === "ELOOP") throw new Damage(part, "presence", `its ${part} is a link`);
    throw error;
  }
}
