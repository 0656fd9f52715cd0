import { expect, test } from "vitest";
import { samplePage, seeded } from "../../../../test/contract/checkpoint-store-sample.ts";
import { BLOCK_BYTES, blockDigest, contentDigest } from "./content-digest.ts";
import { Damage } from "./damage.ts";
import { codecs, decodeChunk, encodeChunk, packKey } from "./pack.ts";

const key = packKey(new Uint8Array(32).fill(1), "pk_1", new Uint8Array(16));

test("a chunk of text is compressed, one of noise is not, and both come back", () => {
  const text = new Uint8Array(Buffer.from("page of text ".repeat(20_000))).subarray(0, 65536);
  const noise = crypto.getRandomValues(new Uint8Array(65536));
  for (const [pages, codec] of [
    [text, codecs.zstd],
    [noise, codecs.raw],
  ] as const) {
    const chunk = encodeChunk(key, 5, pages);
    expect(chunk.codec).toBe(codec);
    expect(Buffer.from(decodeChunk(key, 5, chunk, pages.length)).equals(pages)).toBe(true);
  }
});

test("a chunk opens with its own key, number, tag and text only", () => {
  const pages = samplePage(seeded(1));
  const chunk = encodeChunk(key, 5, pages);
  const otherKey = packKey(new Uint8Array(32).fill(1), "pk_2", new Uint8Array(16));
  const flipped = Uint8Array.from(chunk.text);
  flipped[9] = (flipped[9] ?? 0) ^ 1;
  expect(() => decodeChunk(otherKey, 5, chunk, pages.length)).toThrow(Damage);
  expect(() => decodeChunk(key, 6, chunk, pages.length)).toThrow(Damage);
  expect(() => decodeChunk(key, 5, { ...chunk, text: flipped }, pages.length)).toThrow(Damage);
  expect(() => decodeChunk(key, 5, { ...chunk, tag: new Uint8Array(16) }, pages.length)).toThrow(
    Damage,
  );
});

test("a chunk that is larger than its map says does not decompress", () => {
  const chunk = encodeChunk(key, 0, new Uint8Array(65536));
  expect(() => decodeChunk(key, 0, chunk, 4096)).toThrow(Damage);
  expect(() => decodeChunk(key, 0, chunk, 65536 + 4096)).toThrow(Damage);
});

test("the digest of a large file is what its definition says", async () => {
  const { createHash } = await import("node:crypto");
  const sha = (...parts: Uint8Array[]): Buffer =>
    parts.reduce((hash, part) => hash.update(part), createHash("sha256")).digest();
  const file = Buffer.concat([
    Buffer.alloc(BLOCK_BYTES),
    Buffer.alloc(BLOCK_BYTES, 7),
    Buffer.from("tail"),
  ]);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(file.length));
  const blocks = [0, 1, 2].map((i) => file.subarray(i * BLOCK_BYTES, (i + 1) * BLOCK_BYTES));
  const expected = sha(
    Buffer.from("perdure.blocks.1\n"),
    length,
    ...blocks.map((block) => sha(block)),
  );
  expect(contentDigest(file.length, blocks.map(blockDigest))).toBe(expected.toString("hex"));
  expect(() => contentDigest(file.length, [blockDigest(file.subarray(0, 9))])).toThrow(RangeError);
});
