import { PerdureError } from "@perdure/protocol";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { cpuMs } from "./fake/measure.ts";
import { Fields, FieldWriter } from "./field.ts";

const violation = expect.objectContaining({ code: "guest_protocol_violation" }) as Error;

function parse(writer: FieldWriter): Fields {
  return Fields.parse(writer.finish());
}

describe("fields", () => {
  test("numbers, text, bytes and lists are read as they were written", () => {
    const fields = parse(
      new FieldWriter()
        .number(1, 2 ** 53 - 1)
        .number(2, 2n ** 64n - 1n)
        .signed(3, -5n)
        .string(4, "Größe 😀")
        .string(5, "a")
        .string(5, "")
        .flag(6, true)
        .nested(7, new FieldWriter().string(1, "in"))
        .bytes(999, new Uint8Array(3)),
    );
    expect(fields.number(1)).toBe(2 ** 53 - 1);
    expect(fields.wide(2)).toBe(2n ** 64n - 1n);
    expect(BigInt.asIntN(64, fields.wide(3))).toBe(-5n);
    expect(fields.string(4)).toBe("Größe 😀");
    expect(fields.strings(5, 2)).toEqual(["a", ""]);
    expect(fields.flag(6)).toBe(true);
    expect(fields.nested(7, 1)[0]?.string(1)).toBe("in");
    expect(fields.optionalNumber(8)).toBeUndefined();
    expect(fields.strings(8, 0)).toEqual([]);
  });

  test.each<[string, (fields: Fields) => unknown]>([
    ["a missing field", (fields) => fields.number(99)],
    ["a repeated field", (fields) => fields.string(5)],
    ["too long a list", (fields) => fields.strings(5, 1)],
    ["a number beyond 2^53", (fields) => fields.number(2)],
    ["a number beyond its bound", (fields) => fields.number(1, 255)],
    ["text read as a number", (fields) => fields.number(4)],
    ["a flag that is 2", (fields) => fields.flag(7)],
    ["text that is not UTF-8", (fields) => fields.string(3)],
    ["too long a text", (fields) => fields.string(4, 2)],
    ["a nested list that is cut short", (fields) => fields.nested(4, 1)],
  ])("%s breaks the protocol", (_name, read) => {
    const fields = parse(
      new FieldWriter()
        .number(1, 256)
        .number(2, 2n ** 60n)
        .bytes(3, Uint8Array.of(0xff, 0xfe))
        .string(4, "abc")
        .string(5, "a")
        .string(5, "b")
        .number(7, 2),
    );
    expect(() => read(fields)).toThrow(violation);
  });

  test("any bytes at all are a list or a violation", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
        try {
          const fields = Fields.parse(bytes);
          fields.optionalString(1);
          fields.nested(2, 4);
        } catch (error) {
          expect(error).toBeInstanceOf(PerdureError);
        }
      }),
      { numRuns: 2000 },
    );
  });

  test("what cannot be sent is refused before it is sent", () => {
    const refused = expect.objectContaining({ code: "bad_request" }) as Error;
    expect(() => new FieldWriter().number(1, -1)).toThrow(refused);
    expect(() => new FieldWriter().number(1, 1.5)).toThrow(refused);
    expect(() => new FieldWriter().number(1, 2n ** 64n)).toThrow(refused);
    expect(() => new FieldWriter().signed(1, 2n ** 63n)).toThrow(refused);
    expect(() => new FieldWriter().string(1, "\ud800")).toThrow(refused);
  });

  test("a frame full of empty fields is parsed in milliseconds", () => {
    const bytes = new Uint8Array(65_532);
    const spentMs = cpuMs(() => {
      expect(() => Fields.parse(bytes).strings(0, 1000)).toThrow(violation);
    });
    expect(spentMs).toBeLessThan(200);
  });
});
