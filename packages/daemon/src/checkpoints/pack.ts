/**
 * Pack: the file of stored pages that one checkpoint wrote; later checkpoints may refer to it.
 *
 * A pack is a plain sequence of chunks, without a header. A chunk is up to 64 pages, compressed with
 * zstd where that pays, encrypted with AES-256-GCM under the pack's key. Where each chunk lies, its
 * tag and its codec stand in the page map, which the signed manifest pins by digest: so a pack is
 * authenticated chunk by chunk while it is read, and needs no digest of its own.
 *
 * The pack's key is derived from the agent's key, the pack's id and a random salt; the nonce is the
 * chunk's number within the pack, never used twice because the key is not.
 */
import { createCipheriv, createDecipheriv } from "node:crypto";
import { constants, zstdCompressSync, zstdDecompressSync } from "node:zlib";
import { Damage } from "./damage.ts";
import { PAGE_BYTES } from "./page-size.ts";
import { deriveKey } from "./sealed.ts";

export const CHUNK_PAGES_MAX = 64;
export const CHUNK_BYTES_MAX = CHUNK_PAGES_MAX * PAGE_BYTES;
export const TAG_BYTES = 16;
export const PACK_SALT_BYTES = 16;

export const codecs = { raw: 0, zstd: 1 } as const;

/** Compression must save at least one part in sixteen to be worth undoing at every wake. */
const savedShareMin = 16;

export interface EncodedChunk {
  readonly codec: number;
  readonly tag: Uint8Array;
  readonly text: Uint8Array;
}

export function packKey(
  agentKey: Uint8Array,
  id: string,
  salt: Uint8Array,
): Uint8Array<ArrayBuffer> {
  return deriveKey(agentKey, salt, `pack ${id}`);
}

function chunkNonce(number: number): Uint8Array {
  const nonce = Buffer.alloc(12);
  nonce.writeUInt32BE(number, 8);
  return nonce;
}

export function encodeChunk(key: Uint8Array, number: number, pages: Uint8Array): EncodedChunk {
  const packed = zstdCompressSync(pages, { params: { [constants.ZSTD_c_compressionLevel]: 1 } });
  const pays = packed.length <= pages.length - pages.length / savedShareMin;
  const cipher = createCipheriv("aes-256-gcm", key, chunkNonce(number));
  const text = cipher.update(pays ? packed : pages);
  cipher.final();
  return { codec: pays ? codecs.zstd : codecs.raw, tag: cipher.getAuthTag(), text };
}

/** @throws Damage unless `text` is exactly what was written as this chunk */
export function decodeChunk(
  key: Uint8Array,
  number: number,
  chunk: EncodedChunk,
  bytes: number,
): Uint8Array {
  const decipher = createDecipheriv("aes-256-gcm", key, chunkNonce(number));
  decipher.setAuthTag(chunk.tag);
  const packed = decipher.update(chunk.text);
  try {
    decipher.final();
  } catch {
    throw new Damage("pack", "authentication", `chunk ${number} of its pack is damaged`);
  }
  if (chunk.codec === codecs.raw) return packed;
  try {
    const pages = zstdDecompressSync(packed, { maxOutputLength: bytes });
    if (pages.length === bytes) return pages;
  } catch {
    // Falls through to the same answer: authenticated, and yet not what the map says.
  }
  throw new Damage("pack", "format", `chunk ${number} of its pack does not decompress to its size`);
}
