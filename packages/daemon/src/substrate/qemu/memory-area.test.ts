import { expect, test } from "vitest";
import { parseMemoryAreas } from "./memory-area.ts";

const line = (range: string, rights: string, offset: string, path: string): string =>
  `${range} ${rights} ${offset} fe:00 123                       ${path}`;

const MIB = 1024 * 1024;

test("the areas of the base are found, among others and in any order", () => {
  const maps = [
    line("5500-5600", "r-xp", "00000000", "/usr/bin/qemu-system-x86_64"),
    line("7f0008000000-7f0010000000", "rw-p", "08000000", "/data/base"),
    line("7f0000000000-7f0008000000", "rw-p", "00000000", "/data/base"),
    line("7f0020000000-7f0028000000", "rw-p", "00000000", "/data/base2"),
    "7ffc0000-7ffd0000 rw-p 00000000 00:00 0                          [stack]",
  ].join("\n");
  expect(parseMemoryAreas(maps, "/data/base", 256 * MIB, "private")).toEqual([
    { address: 0x7f0000000000, offset: 0, bytes: 128 * MIB },
    { address: 0x7f0008000000, offset: 128 * MIB, bytes: 128 * MIB },
  ]);
});

test("a base that was unlinked is still found", () => {
  const maps = line("7f0000000000-7f0008000000", "rw-p", "00000000", "/data/zero (deleted)");
  expect(parseMemoryAreas(maps, "/data/zero", 128 * MIB, "private")).toHaveLength(1);
});

test.each([
  ["a gap", line("7f0000001000-7f0008000000", "rw-p", "00001000", "/b"), "private"],
  ["a missing end", line("7f0000000000-7f0007fff000", "rw-p", "00000000", "/b"), "private"],
  ["a shared mapping", line("7f0000000000-7f0008000000", "rw-s", "00000000", "/b"), "private"],
  ["a private template", line("7f0000000000-7f0008000000", "rw-p", "00000000", "/b"), "shared"],
  ["a read-only area", line("7f0000000000-7f0008000000", "r--p", "00000000", "/b"), "private"],
  ["nothing", "", "private"],
] as const)("%s is refused", (_, maps, sharing) => {
  expect(() => parseMemoryAreas(maps, "/b", 128 * MIB, sharing)).toThrow("Cannot find");
});

test("a part that is mapped twice is refused", () => {
  const maps = [
    line("7f0000000000-7f0008000000", "rw-p", "00000000", "/b"),
    line("7f0100000000-7f0108000000", "rw-p", "00000000", "/b"),
  ].join("\n");
  expect(() => parseMemoryAreas(maps, "/b", 128 * MIB, "private")).toThrow("twice");
});
