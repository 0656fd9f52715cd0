import { PerdureError } from "@perdure/protocol";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { cpuMs } from "./fake/measure.ts";
import { encodeFrame, FrameParser, frameType, type FrameType } from "./frame.ts";

interface Seen {
  readonly type: number;
  readonly stream: number;
  readonly payload: number[];
}

function parseAll(chunks: readonly Uint8Array[]): Seen[] {
  const seen: Seen[] = [];
  const parser = new FrameParser((type, stream, payload) =>
    seen.push({ type, stream, payload: [...payload] }),
  );
  for (const chunk of chunks) parser.push(chunk);
  return seen;
}

/** `bytes` cut at these places, in any order and number. */
function cut(bytes: Uint8Array, places: readonly number[]): Uint8Array[] {
  const at = [...new Set(places.map((place) => place % (bytes.length + 1)))].sort((a, b) => a - b);
  return [...at, bytes.length].map((end, i) => bytes.subarray(at[i - 1] ?? 0, end));
}

const frames = fc.array(
  fc.record({
    type: fc.integer({ min: 1, max: 7 }),
    stream: fc.integer({ min: 0, max: 2 ** 32 - 1 }),
    payload: fc.uint8Array({ maxLength: 300 }),
  }),
  { maxLength: 20 },
);

describe("frames", () => {
  test("are parsed as they were encoded, wherever the bytes are cut", () => {
    fc.assert(
      fc.property(frames, fc.array(fc.nat(), { maxLength: 40 }), (wanted, places) => {
        const bytes = Buffer.concat(
          wanted.map((frame) => encodeFrame(frame.type as FrameType, frame.stream, frame.payload)),
        );
        const expected = wanted.map((frame) => ({ ...frame, payload: [...frame.payload] }));
        expect(parseAll(cut(bytes, places))).toEqual(expected);
      }),
    );
  });

  test("of the largest size are parsed byte by byte", () => {
    const payload = new Uint8Array(65_536).fill(7);
    const bytes = encodeFrame(frameType.data, 1, payload);
    const chunks = Array.from(bytes, (byte) => Uint8Array.of(byte));
    expect(parseAll(chunks).map((frame) => frame.payload.length)).toEqual([65_536]);
  });

  test("with any byte changed are parsed or refused, and nothing else", () => {
    fc.assert(
      fc.property(frames, fc.array(fc.tuple(fc.nat(), fc.nat(255))), (wanted, changes) => {
        const bytes = Buffer.concat(
          wanted.map((frame) => encodeFrame(frame.type as FrameType, frame.stream, frame.payload)),
        );
        for (const [at, value] of changes) if (bytes.length > 0) bytes[at % bytes.length] = value;
        try {
          parseAll([bytes]);
        } catch (error) {
          expect(error).toBeInstanceOf(PerdureError);
        }
      }),
    );
  });

  test.each([
    ["a length below the header", [7, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0]],
    ["a length above the limit", [9, 0, 1, 0, 3, 0, 0, 0, 1, 0, 0, 0]],
    ["a giant length", [255, 255, 255, 255, 3, 0, 0, 0, 1, 0, 0, 0]],
    ["an unknown type", [8, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0]],
    ["type zero", [8, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]],
    ["flags", [8, 0, 0, 0, 3, 1, 0, 0, 1, 0, 0, 0]],
    ["a reserved byte", [8, 0, 0, 0, 3, 0, 0, 1, 1, 0, 0, 0]],
  ])("with %s break the protocol", (_name, header) => {
    const bytes = Uint8Array.from(header);
    for (const chunks of [[bytes], cut(bytes, [5])]) {
      expect(() => parseAll(chunks)).toThrow(
        expect.objectContaining({ code: "guest_protocol_violation" }),
      );
    }
  });

  test("the smallest ones cost less than a microsecond each", () => {
    const one = encodeFrame(frameType.response, 1);
    const chunk = Buffer.concat(Array.from({ length: 5461 }, () => one));
    let count = 0;
    const parser = new FrameParser(() => count++);
    const spentMs = cpuMs(() => {
      for (let i = 0; i < 200; i++) parser.push(chunk);
    });
    expect(count).toBe(200 * 5461);
    expect(spentMs / count).toBeLessThan(0.001);
  });
});
