/**
 * The digest of a large file: memory bases and disk layers.
 *
 * Definition: SHA-256 over the ASCII text `perdure.blocks.1` and a line feed, the file's length as
 * eight bytes little-endian, and the SHA-256 of each block of 1 MiB in order (the last one may be
 * shorter). Blocks can be hashed by several threads at once, and a block of zeros, which is what a
 * hole reads as, costs a comparison only.
 */
import { createHash, hash } from "node:crypto";
import type { Digest } from "@perdure/protocol";

export const BLOCK_BYTES = 1024 * 1024;
export const BLOCK_DIGEST_BYTES = 32;

const zeroBlock = Buffer.alloc(BLOCK_BYTES);
const zeroBlockDigest = hash("sha256", zeroBlock, "buffer");

export function blockCount(bytes: number): number {
  return Math.ceil(bytes / BLOCK_BYTES);
}

export function isZero(bytes: Uint8Array): boolean {
  return zeroBlock.compare(bytes, 0, bytes.length, 0, bytes.length) === 0;
}

/** SHA-256 of one block of at most 1 MiB. */
export function blockDigest(block: Uint8Array): Uint8Array {
  if (block.length === BLOCK_BYTES && isZero(block)) return zeroBlockDigest;
  return hash("sha256", block, "buffer");
}

/** The file's digest from its length and its blocks' digests, in pieces, in order. */
export function contentDigest(bytes: number, blockDigests: Iterable<Uint8Array>): Digest {
  const total = createHash("sha256");
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(bytes));
  total.update("perdure.blocks.1\n").update(length);
  let digestBytes = 0;
  for (const piece of blockDigests) {
    total.update(piece);
    digestBytes += piece.length;
  }
  if (digestBytes !== blockCount(bytes) * BLOCK_DIGEST_BYTES) {
    throw new RangeError("The block digests do not cover the file");
  }
  return total.digest("hex") as Digest;
}
