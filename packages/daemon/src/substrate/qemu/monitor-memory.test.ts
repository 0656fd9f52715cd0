import { expect, test } from "vitest";
import { guestAddress, spans } from "./monitor-memory.ts";

const GIB = 1024 ** 3;

test("memory is one piece below 3.5 GiB, and continues at 4 GiB from there on", () => {
  expect(guestAddress(3 * GIB, 3.25 * GIB)).toBe(3 * GIB);
  expect(guestAddress(3 * GIB - 1, 4 * GIB)).toBe(3 * GIB - 1);
  expect(guestAddress(3 * GIB, 4 * GIB)).toBe(4 * GIB);
  expect(guestAddress(6 * GIB - 4096, 6 * GIB)).toBe(7 * GIB - 4096);
});

test("near pages are saved at once, far ones and the hole apart", () => {
  const edge = (3 * GIB) / 4096;
  const indexes = Uint32Array.of(0, 1, 10, 100, edge - 1, edge);
  expect(spans(indexes, 4 * GIB)).toEqual([
    { first: 0, count: 3 },
    { first: 3, count: 1 },
    { first: 4, count: 1 },
    { first: 5, count: 1 },
  ]);
  expect(spans(new Uint32Array(0), 4 * GIB)).toEqual([]);
});
