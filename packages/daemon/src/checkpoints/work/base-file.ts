/**
 * Jobs on large files, a range of blocks at a time so that several workers share one file: write a
 * memory base, and hash a base or a layer.
 */
import { closeSync, constants, openSync, readSync } from "node:fs";
import { BLOCK_BYTES, BLOCK_DIGEST_BYTES, blockDigest, isZero } from "../content-digest.ts";
import { PAGE_BYTES } from "../page-size.ts";
import { openPart } from "./read-pages.ts";
import { writeAll } from "./store-pages.ts";

/** Pages of a block. */
export const BLOCK_PAGES = BLOCK_BYTES / PAGE_BYTES;

export interface BlockRange {
  /** Length of the whole file. */
  readonly bytes: number;
  readonly fromBlock: number;
  readonly toBlock: number;
}

export interface WriteBaseInput extends BlockRange {
  /** Null: zeros. */
  readonly basePath: string | null;
  /** An empty file of `bytes`. */
  readonly outPath: string;
  /** Pages that lie over the base, ascending from part to part; those beyond the range are ignored. */
  readonly parts: readonly {
    readonly indexes: Uint32Array;
    readonly bytes: Uint8Array<ArrayBuffer>;
  }[];
}

export interface WrittenBlocks {
  readonly digests: Uint8Array<ArrayBuffer>;
  /** Buffers of the parts' bytes, which nobody needs any more. */
  readonly spent: readonly ArrayBuffer[];
}

/** Writes blocks of base with pages over it, zero pages left as holes. */
export function writeBase(input: WriteBaseInput): WrittenBlocks {
  const { bytes, fromBlock, toBlock } = input;
  const digests = new Uint8Array((toBlock - fromBlock) * BLOCK_DIGEST_BYTES);
  const block = Buffer.alloc(BLOCK_BYTES);
  const over = pagesOver(input.parts, fromBlock * BLOCK_PAGES);
  let next = over.next();
  const base = input.basePath === null ? null : openSync(input.basePath, constants.O_RDONLY);
  const out = openSync(input.outPath, constants.O_WRONLY);
  try {
    for (let at = fromBlock; at < toBlock; at++) {
      const view = block.subarray(0, Math.min(BLOCK_BYTES, bytes - at * BLOCK_BYTES));
      if (base === null) view.fill(0);
      else readFully(base, view, at * BLOCK_BYTES);
      while (next.done !== true && next.value.index < (at + 1) * BLOCK_PAGES) {
        view.set(next.value.page, (next.value.index - at * BLOCK_PAGES) * PAGE_BYTES);
        next = over.next();
      }
      digests.set(blockDigest(view), (at - fromBlock) * BLOCK_DIGEST_BYTES);
      writeSparse(out, view, at * BLOCK_BYTES);
    }
  } finally {
    closeSync(out);
    if (base !== null) closeSync(base);
  }
  return { digests, spent: input.parts.map((part) => part.bytes.buffer) };
}

function* pagesOver(
  parts: WriteBaseInput["parts"],
  fromIndex: number,
): Generator<{ index: number; page: Uint8Array }, void, undefined> {
  for (const { indexes, bytes } of parts) {
    for (let i = 0; i < indexes.length; i++) {
      const index = indexes[i] ?? 0;
      if (index < fromIndex) throw new Error("A captured page batch is not in order");
      yield { index, page: bytes.subarray(i * PAGE_BYTES, (i + 1) * PAGE_BYTES) };
    }
  }
}

/** Writes the runs of pages that are not zero. */
function writeSparse(fd: number, block: Buffer, offset: number): void {
  if (isZero(block)) return;
  let from = 0;
  for (let at = 0; at <= block.length; at += PAGE_BYTES) {
    if (at < block.length && !isZero(block.subarray(at, at + PAGE_BYTES))) continue;
    if (at > from) writeAll(fd, block.subarray(from, Math.min(at, block.length)), offset + from);
    from = at + PAGE_BYTES;
  }
  if (from < block.length) writeAll(fd, block.subarray(from), offset + from);
}

export interface DigestBlocksInput extends BlockRange {
  readonly path: string;
  readonly part: "base" | "layer";
}

/** The SHA-256 of each block in the range. */
export function digestBlocks(input: DigestBlocksInput): Uint8Array<ArrayBuffer> {
  const { bytes, fromBlock, toBlock } = input;
  const digests = new Uint8Array((toBlock - fromBlock) * BLOCK_DIGEST_BYTES);
  const block = Buffer.alloc(BLOCK_BYTES);
  const fd = openPart(input.part, input.path);
  try {
    for (let at = fromBlock; at < toBlock; at++) {
      const view = block.subarray(0, Math.min(BLOCK_BYTES, bytes - at * BLOCK_BYTES));
      readFully(fd, view, at * BLOCK_BYTES);
      digests.set(blockDigest(view), (at - fromBlock) * BLOCK_DIGEST_BYTES);
    }
  } finally {
    closeSync(fd);
  }
  return digests;
}

function readFully(fd: number, view: Buffer, offset: number): void {
  for (let done = 0; done < view.length;) {
    const count = readSync(fd, view, done, view.length - done, offset + done);
    if (count === 0) throw new Error("A file became shorter while it was read");
    done += count;
  }
}
