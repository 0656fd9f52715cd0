import { closeSync, openSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { hash } from "node:crypto";
import { afterAll, beforeAll, expect, test } from "vitest";
import { PAGE, samplePage, seeded } from "../../../../test/contract/checkpoint-store-sample.ts";
import { classify, pageKinds } from "./classify.ts";
import { packsToDrop } from "./local/live-packs.ts";
import { HASH_BYTES, ZERO, chunkColumns, mapColumns } from "./page-map.ts";
import type { PageMap } from "./page-map.ts";

let folder: string;
let baseFd: number;
const draw = seeded(2);
const basePages = Array.from({ length: 600 }, () => samplePage(draw));
basePages[4] = new Uint8Array(PAGE);
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "perdure-classify-"));
  await writeFile(join(folder, "base"), Buffer.concat(basePages));
  baseFd = openSync(join(folder, "base"), "r");
});
afterAll(async () => {
  closeSync(baseFd);
  await rm(folder, { recursive: true });
});

const zero = new Uint8Array(PAGE);
const known = samplePage(draw);
const fresh = samplePage(draw);

/** A parent that stored `page` at each of these indexes, each in the pack of the same place. */
function parentOf(pages: readonly (readonly [number, Uint8Array])[], packs = 1): PageMap {
  const chunks = chunkColumns(packs);
  const columns = mapColumns(pages.length);
  for (let i = 0; i < packs; i++) chunks.pack[i] = i;
  pages.forEach(([index, page], i) => {
    columns.index[i] = index;
    columns.chunk[i] = page === zero ? ZERO : i % packs;
    columns.hash.set(hash("sha256", page, "buffer").subarray(0, HASH_BYTES), i * HASH_BYTES);
  });
  const list = Array.from({ length: packs }, (_, i) => ({
    id: `pk_${i}`,
    salt: new Uint8Array(16),
    bytes: 1,
    storedPages: 1,
  }));
  return { pageCount: 600, packs: list, chunks, ...columns };
}

function kindsOf(
  pages: readonly (readonly [number, Uint8Array])[],
  base: number | null,
  map: PageMap | null = null,
  droppedPacks: readonly number[] = [],
): (keyof typeof pageKinds)[] {
  const { kind } = classify(
    Uint32Array.from(pages, ([index]) => index),
    new Uint8Array(Buffer.concat(pages.map(([, page]) => page))),
    base,
    map === null ? null : { map, droppedPacks },
  );
  const names = Object.keys(pageKinds) as (keyof typeof pageKinds)[];
  return [...kind].map((value) => names.find((name) => pageKinds[name] === value) ?? "base");
}

test("a page is compared with the base, then with zero, then with the parent, in this order", () => {
  const base = (index: number): readonly [number, Uint8Array] => [index, basePages[index] ?? zero];
  const map = parentOf([
    [1, known],
    [2, known],
    [3, basePages[3] ?? zero],
    [5, known],
  ]);
  expect(
    kindsOf(
      [base(0), [1, known], [2, fresh], base(3), base(4), [5, zero], [599, fresh]],
      baseFd,
      map,
    ),
  ).toEqual(["base", "keep", "store", "base", "base", "zero", "store"]);
});

test("over a base of zeros a zero page is the base", () => {
  expect(
    kindsOf(
      [
        [0, zero],
        [7, fresh],
      ],
      null,
      parentOf([[0, known]]),
    ),
  ).toEqual(["base", "store"]);
});

test("long runs and single pages are compared with the right page of the base", () => {
  const all = basePages.map((page, index) => [index, page] as const);
  expect(kindsOf(all, baseFd).every((kind) => kind === "base")).toBe(true);
  const odd = all.filter(([index]) => index % 2 === 1);
  expect(kindsOf(odd, baseFd).every((kind) => kind === "base")).toBe(true);
  const shifted = all.slice(0, -1).map(([index, page]) => [index + 1, page] as const);
  expect(kindsOf(shifted, baseFd).includes("base")).toBe(false);
});

test("a page is not kept where the parent has other content, has zero, or its pack is dropped", () => {
  const map = parentOf(
    [
      [1, known],
      [2, zero],
      [3, known],
      [4, known],
    ],
    2,
  );
  expect(
    kindsOf(
      [
        [1, fresh],
        [2, known],
        [3, known],
        [4, known],
      ],
      null,
      map,
      [1],
    ),
  ).toEqual(["store", "store", "keep", "store"]);
});

test("packs that are less than half alive, unusable, or beyond the limit are dropped, fewest live first", () => {
  const packs = 10;
  const pages = Array.from({ length: 55 }, (_, i) => i);
  const map = parentOf(
    pages.map((index) => [index, known] as const),
    packs,
  );
  // Pack i holds i + 1 live pages.
  let entry = 0;
  for (let pack = 0; pack < packs; pack++) {
    for (let i = 0; i <= pack; i++) map.chunk[entry++] = pack;
  }
  const withStored = (stored: (live: number) => number): PageMap => ({
    ...map,
    packs: map.packs.map((pack, i) => ({ ...pack, storedPages: stored(i + 1) })),
  });
  const sorted = (list: number[]): number[] => list.sort((a, b) => a - b);
  expect(
    sorted(
      packsToDrop(
        withStored((live) => 2 * live),
        () => false,
      ),
    ),
  ).toEqual([0, 1, 2]);
  expect(
    packsToDrop(
      withStored((live) => 2 * live + 1),
      () => false,
    ),
  ).toHaveLength(packs);
  expect(
    sorted(
      packsToDrop(
        withStored((live) => live),
        (id) => id === "pk_9" || id === "pk_5",
      ),
    ),
  ).toEqual([0, 5, 9]);
});
