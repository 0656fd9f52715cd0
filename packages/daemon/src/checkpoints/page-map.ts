/**
 * Page map: where each page of a checkpoint's memory is. Complete: every index is equal to the base,
 * zero, or stored at (pack, chunk, position), so nothing but this map is needed to wake.
 *
 * In memory it is columns, one entry per page that differs from the base, in ascending order; they
 * live in shared memory so that worker threads read them without copies. Each stored page has the
 * first 16 bytes of its SHA-256: that is how the next checkpoint recognises an unchanged page. (A guest
 * that found two pages with the same 16 bytes could damage its own memory, and nobody else's.)
 *
 * As bytes it is in `page-map-file.ts`.
 */
import { TAG_BYTES } from "./pack.ts";

export const HASH_BYTES = 16;
/** Packs that one checkpoint may refer to. */
export const PACKS_MAX = 8;
/** Chunk of an entry that is a page of zeros. */
export const ZERO = -1;

export interface MapPack {
  readonly id: string;
  readonly salt: Uint8Array;
  readonly bytes: number;
  /** Pages it held when it was written. */
  readonly storedPages: number;
}

/** The chunks that the map refers to, as columns. */
export interface MapChunks {
  readonly count: number;
  /** Index into `packs`. */
  readonly pack: Uint8Array;
  /** Number within its pack: the nonce. */
  readonly number: Uint32Array;
  readonly offset: Float64Array;
  readonly length: Uint32Array;
  readonly codec: Uint8Array;
  readonly pages: Uint8Array;
  /** `TAG_BYTES` per chunk. */
  readonly tag: Uint8Array;
}

export interface PageMap {
  readonly pageCount: number;
  readonly packs: readonly MapPack[];
  readonly chunks: MapChunks;
  /** Page indexes, ascending. */
  readonly index: Uint32Array;
  /** Index into `chunks`, or `ZERO`. */
  readonly chunk: Int32Array;
  readonly position: Uint8Array;
  /** `HASH_BYTES` per entry; zeros for zero pages. */
  readonly hash: Uint8Array;
}

/** Empty columns for `entries` entries, in shared memory. */
export function mapColumns(
  entries: number,
): Pick<PageMap, "index" | "chunk" | "position" | "hash"> {
  return {
    index: new Uint32Array(new SharedArrayBuffer(entries * 4)),
    chunk: new Int32Array(new SharedArrayBuffer(entries * 4)),
    position: new Uint8Array(new SharedArrayBuffer(entries)),
    hash: new Uint8Array(new SharedArrayBuffer(entries * HASH_BYTES)),
  };
}

export function chunkColumns(count: number): MapChunks {
  return {
    count,
    pack: new Uint8Array(new SharedArrayBuffer(count)),
    number: new Uint32Array(new SharedArrayBuffer(count * 4)),
    offset: new Float64Array(new SharedArrayBuffer(count * 8)),
    length: new Uint32Array(new SharedArrayBuffer(count * 4)),
    codec: new Uint8Array(new SharedArrayBuffer(count)),
    pages: new Uint8Array(new SharedArrayBuffer(count)),
    tag: new Uint8Array(new SharedArrayBuffer(count * TAG_BYTES)),
  };
}
