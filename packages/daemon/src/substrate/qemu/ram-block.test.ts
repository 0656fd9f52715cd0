import { expect, test } from "vitest";
import { unknownRamBlocks } from "./ram-block.ts";

const head =
  "              Block Name    PSize              Offset               Used              Total";
const block = (name: string): string =>
  `                ${name}    4 KiB  0x0000000000000000 0x0000000020000000 0x0000000020000000`;

test("the blocks of a plain machine are known", () => {
  const names = ["mem", "pc.bios", "pc.rom", "/rom@etc/acpi/tables", "/rom@etc/table-loader"];
  expect(unknownRamBlocks([head, ...names.map(block), ""].join("\n"))).toEqual([]);
});

test("a block that a checkpoint would not hold is named", () => {
  const text = [head, block("mem"), block("vga.vram"), block("0000:00:06.0/pmem")].join("\n");
  expect(unknownRamBlocks(text)).toEqual(["vga.vram", "0000:00:06.0/pmem"]);
});

test("an answer without the guest's memory is not taken for an empty list", () => {
  expect(unknownRamBlocks("")).toHaveLength(1);
});
