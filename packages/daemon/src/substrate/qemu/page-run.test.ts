import { expect, test } from "vitest";
import { newPages, pageRuns } from "./page-run.ts";

const areas = [
  { address: 0x7000_0000_0000, offset: 0, bytes: 8 * 4096 },
  { address: 0x7fff_0000_0000, offset: 8 * 4096, bytes: 8 * 4096 },
];

test("neighbours become one run, and a run never crosses from one area into the next", () => {
  const runs = pageRuns(Uint32Array.of(0, 1, 2, 5, 7, 8, 9, 15), areas);
  expect(runs).toEqual([
    { address: 0x7000_0000_0000, first: 0, pages: 3 },
    { address: 0x7000_0000_5000, first: 3, pages: 1 },
    { address: 0x7000_0000_7000, first: 4, pages: 1 },
    { address: 0x7fff_0000_0000, first: 5, pages: 2 },
    { address: 0x7fff_0000_7000, first: 7, pages: 1 },
  ]);
});

test("new pages are those that were not known, whichever end before the others", () => {
  const pages = Uint32Array.of(1, 2, 5, 8, 9);
  const newer = (...known: number[]): number[] => [...newPages(pages, Uint32Array.from(known))];
  expect(newer()).toEqual([1, 2, 5, 8, 9]);
  expect(newer(1, 2, 5, 8, 9)).toEqual([]);
  expect(newer(0, 2, 3, 9, 11)).toEqual([1, 5, 8]);
  expect(newer(20)).toEqual([1, 2, 5, 8, 9]);
});

test("no pages are no runs", () => {
  expect(pageRuns(new Uint32Array(0), areas)).toEqual([]);
});

test("a page outside of the memory, or out of order, is refused", () => {
  expect(() => pageRuns(Uint32Array.of(16), areas)).toThrow("outside");
  expect(() => pageRuns(Uint32Array.of(2, 1), areas)).toThrow();
  expect(() => pageRuns(Uint32Array.of(1, 1), areas)).toThrow();
});
