import * as fc from "fast-check";
import { expect, test } from "vitest";
import { seeded } from "../../../../test/contract/checkpoint-store-sample.ts";
import { Damage } from "./damage.ts";
import { decodePageMap, encodePageMap, pageMapBytesMax } from "./page-map-file.ts";
import { HASH_BYTES, ZERO, chunkColumns, mapColumns } from "./page-map.ts";
import type { PageMap } from "./page-map.ts";
import { seal, unseal } from "./sealed.ts";

/** A map that a store could have written: chunks filled in order of index, some of their pages dead. */
function sampleMap(seed: number, pageCount: number, density: number): PageMap {
  const draw = seeded(seed);
  const packs = Array.from({ length: 1 + draw(8) }, (_, i) => ({
    id: `pk_${String(i).repeat(26).replaceAll(/[89]/g, "0")}`,
    salt: Uint8Array.from({ length: 16 }, () => draw(256)),
    bytes: 1_000_000_000 + draw(1_000_000),
    storedPages: draw(1000),
  }));
  const entries: { index: number; chunk: number; position: number }[] = [];
  const list: { pack: number; pages: number }[] = [];
  let room = 0;
  for (let index = 0; index < pageCount; index++) {
    if (draw(100) >= density) continue;
    if (draw(4) === 0) {
      entries.push({ index, chunk: ZERO, position: 0 });
      continue;
    }
    if (room === 0)
      room =
        (list.push({ pack: draw(packs.length), pages: 1 + draw(64) }) && list.at(-1)?.pages) || 1;
    const pages = list.at(-1)?.pages ?? 1;
    entries.push({ index, chunk: list.length - 1, position: pages - room });
    room -= Math.min(room, 1 + (draw(3) === 0 ? draw(5) : 0));
  }
  const chunks = chunkColumns(list.length);
  list.forEach(({ pack, pages }, i) => {
    chunks.pack[i] = pack;
    chunks.pages[i] = pages;
    chunks.number[i] = draw(100_000);
    chunks.offset[i] = draw(900_000_000);
    chunks.codec[i] = draw(2);
    chunks.length[i] = chunks.codec[i] === 0 ? pages * 4096 : 1 + draw(200_000);
    for (let at = 0; at < 16; at++) chunks.tag[i * 16 + at] = draw(256);
  });
  const columns = mapColumns(entries.length);
  entries.forEach(({ index, chunk, position }, i) => {
    columns.index[i] = index;
    columns.chunk[i] = chunk;
    columns.position[i] = position;
    if (chunk === ZERO) return;
    for (let at = 0; at < HASH_BYTES; at++) columns.hash[i * HASH_BYTES + at] = draw(256);
  });
  return { pageCount, packs, chunks, ...columns };
}

/** Everything that a reader relies on without looking again. */
function isSound(map: PageMap, pageCount: number): boolean {
  let last = -1;
  for (let i = 0; i < map.index.length; i++) {
    const index = map.index[i] ?? -1;
    if (index <= last || index >= pageCount) return false;
    last = index;
    const chunk = map.chunk[i] ?? -2;
    if (chunk === ZERO) continue;
    if (chunk < 0 || chunk >= map.chunks.count) return false;
    if ((map.position[i] ?? 255) >= (map.chunks.pages[chunk] ?? 0)) return false;
    const pack = map.packs[map.chunks.pack[chunk] ?? 99];
    const end = (map.chunks.offset[chunk] ?? 0) + (map.chunks.length[chunk] ?? 0);
    if (pack === undefined || end > pack.bytes) return false;
  }
  return true;
}

test("a page map comes back as it was, whatever it holds", () => {
  fc.assert(
    fc.property(
      fc.nat(1_000_000),
      fc.integer({ min: 1, max: 3000 }),
      fc.nat(100),
      (seed, pages, density) => {
        const map = sampleMap(seed, pages, density);
        const body = encodePageMap(map);
        expect(body.length).toBeLessThanOrEqual(pageMapBytesMax(pages));
        expect(decodePageMap(body, pages)).toEqual(map);
      },
    ),
    { numRuns: 200, seed: 1 },
  );
});

test("a page map with a changed, missing or added byte is refused, or is another that is sound", () => {
  const draw = seeded(3);
  let refused = 0;
  for (let round = 0; round < 4000; round++) {
    const pages = 1 + draw(400);
    const body = encodePageMap(sampleMap(round, pages, draw(100)));
    const kind = draw(4);
    let broken = Uint8Array.from(body);
    if (kind === 0) broken = broken.slice(0, draw(body.length));
    else if (kind === 1) broken = Uint8Array.from([...broken, draw(256)]);
    else
      for (let i = 0; i <= draw(3); i++)
        broken[draw(Math.min(body.length, 1 + draw(200)))] = draw(256);
    try {
      expect(isSound(decodePageMap(broken, pages), pages)).toBe(true);
    } catch (error) {
      if (!(error instanceof Damage)) throw error;
      expect(error).toMatchObject({ part: "page-map", check: "format" });
      refused++;
    }
  }
  expect(refused).toBeGreaterThan(2000);
});

test("bytes that never were a page map are refused with the same error", () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 300 }), fc.boolean(), (bytes, marked) => {
      const body = marked ? Uint8Array.from([...Buffer.from("PM01"), ...bytes]) : bytes;
      try {
        expect(isSound(decodePageMap(body, 64), 64)).toBe(true);
      } catch (error) {
        expect(error).toBeInstanceOf(Damage);
      }
    }),
    { numRuns: 2000, seed: 2 },
  );
});

test("a page map for another memory size is refused", () => {
  const body = encodePageMap(sampleMap(1, 100, 50));
  expect(() => decodePageMap(body, 101)).toThrow(Damage);
});

test("an idle agent's map of 400 pages takes less than 16 KiB, sealed", () => {
  const map = sampleMap(4, 131_072, 0);
  const columns = mapColumns(400);
  const chunks = chunkColumns(7);
  chunks.pages.fill(64);
  chunks.length.fill(100_000);
  chunks.codec.fill(1);
  crypto
    .getRandomValues(new Uint8Array(columns.hash.length))
    .forEach((byte, i) => (columns.hash[i] = byte));
  for (let i = 0; i < 400; i++) {
    columns.index[i] = i * 300;
    columns.chunk[i] = Math.floor(i / 64);
    columns.position[i] = i % 64;
  }
  const label = { part: "page-map", agent: "ag", checkpoint: "cp" } as const;
  const body = encodePageMap({ ...map, chunks, ...columns });
  const file = seal(new Uint8Array(32), label, body);
  expect(file.length).toBeLessThan(16 * 1024);
});

test("a sealed file opens under its own key and label only, and with every bit as it was", () => {
  const key = new Uint8Array(32).fill(7);
  const label = { part: "devices", agent: "ag_1", checkpoint: "cp_1" } as const;
  const body = new Uint8Array(Buffer.from("the state of a device ".repeat(50)));
  const file = seal(key, label, body);
  expect(unseal(key, label, file, 4096)).toEqual(body);
  expect(() => unseal(new Uint8Array(32), label, file, 4096)).toThrow(Damage);
  for (const other of [{ part: "page-map" }, { agent: "ag_2" }, { checkpoint: "cp_2" }] as const) {
    expect(() => unseal(key, { ...label, ...other }, file, 4096)).toThrow(Damage);
  }
  for (let bit = 0; bit < file.length * 8; bit++) {
    const broken = Uint8Array.from(file);
    broken[bit >> 3] = (broken[bit >> 3] ?? 0) ^ (1 << (bit & 7));
    expect(() => unseal(key, label, broken, 4096)).toThrow(Damage);
  }
  expect(() => unseal(key, label, file.subarray(0, 20), 4096)).toThrow(Damage);
  expect(() => unseal(key, label, file, body.length - 1)).toThrow(Damage);
});
