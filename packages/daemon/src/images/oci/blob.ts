/**
 * One blob of an archive: its bytes checked against the digest they are named by, and a layer among them
 * uncompressed on the way, as gzip, zstd or plain tar, whatever its media type calls it.
 */
import { createHash } from "node:crypto";
import type { Hash } from "node:crypto";
import type { FileHandle } from "node:fs/promises";
import { Readable } from "node:stream";
import { createGunzip, createZstdDecompress } from "node:zlib";
import { PerdureError } from "@perdure/protocol";
import { invalid, quoted, tooLarge } from "./archive-error.ts";
import type { Limits } from "./archive-error.ts";

/** A stretch of the archive's file. */
export interface Blob {
  readonly at: number;
  readonly bytes: number;
}

/** `sha256:…` or `sha512:…`. */
export interface BlobDigest {
  readonly algorithm: "sha256" | "sha512";
  readonly hex: string;
}

const hexLengths = { sha256: 64, sha512: 128 } as const;

/** @throws `image_archive_invalid` for any other form */
export function parseDigest(text: string): BlobDigest {
  const [algorithm = "", hex = ""] = text.split(":");
  if (algorithm !== "sha256" && algorithm !== "sha512") {
    throw invalid(`the digest ${quoted(text)} is neither sha256 nor sha512`);
  }
  if (text.length !== algorithm.length + 1 + hexLengths[algorithm] || !/^[0-9a-f]+$/.test(hex)) {
    throw invalid(`the digest ${quoted(text)} is malformed`);
  }
  return { algorithm, hex };
}

export function showDigest({ algorithm, hex }: BlobDigest): string {
  return `${algorithm}:${hex}`;
}

const pieceBytes = 256 * 1024;

/** The blob's bytes as they are in the file. */
export async function* rawBytes(file: FileHandle, { at, bytes }: Blob): AsyncGenerator<Buffer> {
  for (let done = 0; done < bytes;) {
    const piece = Buffer.allocUnsafe(Math.min(pieceBytes, bytes - done));
    const { bytesRead } = await file.read(piece, 0, piece.length, at + done);
    if (bytesRead === 0) throw invalid("it ends in the middle of a file");
    done += bytesRead;
    yield piece.subarray(0, bytesRead);
  }
}

/** A small blob as a whole. @param what subject of the sentence, as in `its index` */
export async function readBlob(
  file: FileHandle,
  blob: Blob,
  what: string,
  limits: Limits,
): Promise<Buffer> {
  if (blob.bytes > limits.jsonBytesMax) {
    throw tooLarge(`the bytes of ${what}`, "jsonBytesMax", limits);
  }
  return Buffer.concat(await Array.fromAsync(rawBytes(file, blob)));
}

/** @throws where `bytes` do not have the digest */
export function checkDigest(bytes: Buffer, digest: BlobDigest, what: string): void {
  const found = createHash(digest.algorithm).update(bytes).digest("hex");
  if (found !== digest.hex) throw wrongDigest(what, digest, found);
}

function wrongDigest(what: string, { algorithm, hex }: BlobDigest, found: string): PerdureError {
  return invalid(`${what} should have the digest ${algorithm}:${hex} and has ${found}`);
}

/** Bytes that an unpacked layer may still have. Shared by all layers of an archive. */
export interface Room {
  bytes: number;
}

/**
 * The tar archive in a layer's blob. Both digests are checked when `end` is called, after all of it was read.
 *
 * @param stored digest of the blob; null where none is known
 */
export function openLayer(
  file: FileHandle,
  blob: Blob,
  { stored, unpacked }: { readonly stored: BlobDigest | null; readonly unpacked: BlobDigest },
  room: Room,
  limits: Limits,
): { readonly tar: AsyncIterable<Buffer>; readonly end: (what: string) => void } {
  const storedHash = stored === null ? null : createHash(stored.algorithm);
  const unpackedHash = createHash(unpacked.algorithm);
  const bounded = async function* (): AsyncGenerator<Buffer> {
    for await (const piece of layerBytes(hashed(rawBytes(file, blob), storedHash))) {
      room.bytes -= piece.length;
      if (room.bytes < 0) throw tooLarge("the bytes of its layers", "unpackedBytesMax", limits);
      unpackedHash.update(piece);
      yield piece;
    }
  };
  return {
    tar: bounded(),
    end: (what) => {
      if (stored !== null && storedHash !== null) compare(storedHash, stored, what);
      compare(unpackedHash, unpacked, `${what}, uncompressed,`);
    },
  };
}

function compare(hash: Hash, digest: BlobDigest, what: string): void {
  const found = hash.digest("hex");
  if (found !== digest.hex) throw wrongDigest(what, digest, found);
}

async function* hashed(bytes: AsyncIterable<Buffer>, hash: Hash | null): AsyncGenerator<Buffer> {
  for await (const piece of bytes) {
    hash?.update(piece);
    yield piece;
  }
}

/** Uncompressed, by what the first bytes are. @throws `image_archive_invalid`, `not_supported` */
export async function* layerBytes(bytes: AsyncGenerator<Buffer>): AsyncGenerator<Buffer> {
  const first = await bytes.next();
  if (first.done === true) return;
  const rest = async function* (): AsyncGenerator<Buffer> {
    yield first.value;
    yield* bytes;
  };
  const through = decompressorFor(first.value);
  if (through === null) {
    yield* rest();
    return;
  }
  const source = Readable.from(rest(), { objectMode: false });
  // An error of either ends the other.
  source.on("error", (error) => through.destroy(error));
  source.pipe(through);
  try {
    for await (const piece of through) yield piece as Buffer;
  } catch (error) {
    throw error instanceof PerdureError ? error : broken(error);
  } finally {
    source.destroy();
    through.destroy();
  }
}

function decompressorFor(start: Buffer) {
  switch (compressionIn(start)) {
    case "gzip":
      return createGunzip({ chunkSize: pieceBytes });
    case "zstd":
      return createZstdDecompress({ chunkSize: pieceBytes });
    case null:
      return null;
  }
}

/** How a file is compressed; null where it is not. @throws `not_supported` */
export async function compressionOf(file: FileHandle): Promise<"gzip" | "zstd" | null> {
  const start = Buffer.alloc(magicBytes);
  const { bytesRead } = await file.read(start, 0, magicBytes, 0);
  return compressionIn(start.subarray(0, bytesRead));
}

const magicBytes = 6;

function compressionIn(start: Buffer): "gzip" | "zstd" | null {
  const magic = start.toString("hex", 0, magicBytes);
  if (magic.startsWith("1f8b")) return "gzip";
  if (/^(28b52ffd|5.2a4d18)/.test(magic)) return "zstd";
  const foreign = magic === "fd377a585a00" ? "xz" : /^425a683[1-9]/.test(magic) ? "bzip2" : null;
  if (foreign === null) return null;
  throw new PerdureError(
    "not_supported",
    `Cannot import the archive: something in it is compressed with ${foreign}`,
    { hint: "gzip, zstd and no compression are known." },
  );
}

/** What zlib says, or the file system. */
function broken(error: unknown): unknown {
  const { code, message } = error as NodeJS.ErrnoException;
  if (code?.startsWith("Z_") !== true && code?.startsWith("ZSTD_") !== true) return error;
  return invalid(`something in it is compressed and broken: ${message}`, error);
}
