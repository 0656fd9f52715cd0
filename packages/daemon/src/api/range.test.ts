import fc from "fast-check";
import { expect, it } from "vitest";
import { contentRange, parseRange } from "./range.ts";

it.each([
  ["bytes=0-0", { kind: "from", offset: 0, length: 1 }],
  ["bytes=5-9", { kind: "from", offset: 5, length: 5 }],
  ["BYTES= 5- ", { kind: "from", offset: 5 }],
  ["bytes=-3", { kind: "suffix", length: 3 }],
  ["bytes=-0", { kind: "suffix", length: 0 }],
  [`bytes=${"9".repeat(400)}-`, { kind: "from", offset: 2 ** 52 }],
])("reads %j", (header, range) => {
  expect(parseRange(header)).toEqual(range);
});

it.each([
  ["no header", undefined],
  ["an empty one", ""],
  ["another unit", "lines=0-1"],
  ["several ranges", "bytes=0-1,3-4"],
  ["a last byte before the first", "bytes=5-4"],
  ["no bound at all", "bytes=-"],
  ["a sign", "bytes=+1-2"],
  ["a fraction", "bytes=1.5-2"],
  ["a blank inside", "bytes=1 -2"],
])("takes %s as no range", (_title, header) => {
  expect(parseRange(header)).toBeNull();
});

it("never throws, and what it reads is within what a file can have", () => {
  const header = fc.oneof(
    fc.string({ unit: "binary" }),
    fc
      .array(fc.constantFrom("bytes", "=", "-", ",", " ", "\t", "0", "1", "9999999999999999999"))
      .map((parts) => parts.join("")),
  );
  fc.assert(
    fc.property(header, (text) => {
      const range = parseRange(text);
      if (range === null) return;
      const numbers = [range.length ?? 0, range.kind === "from" ? range.offset : 0];
      for (const number of numbers) {
        expect(Number.isSafeInteger(number) && number >= 0).toBe(true);
      }
    }),
    { numRuns: 2000 },
  );
});

it("names the bytes that are there, or refuses", () => {
  fc.assert(
    fc.property(fc.nat(20), fc.nat(30), fc.option(fc.nat(30)), (size, offset, length) => {
      const there = Array.from({ length: size }, (_, at) => at).slice(
        offset,
        length === null ? undefined : offset + length,
      );
      const range = length === null ? { offset } : { offset, length };
      if (there.length === 0) {
        expect(() => contentRange("/a", size, range)).toThrow(
          expect.objectContaining({ code: "range_not_satisfiable", details: { size } }) as Error,
        );
      } else {
        const expected = `bytes ${there[0]}-${there.at(-1)}/${size}`;
        expect(contentRange("/a", size, range)).toBe(expected);
      }
    }),
  );
});
