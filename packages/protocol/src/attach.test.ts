import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  attachQuerySchema,
  attachRequestSchema,
  decodeOutput,
  encodeOutput,
  keyOfProtocols,
  keyProtocol,
} from "./attach.ts";

describe("output", () => {
  it("is what it was after the way over the wire, at any place in a buffer", () => {
    const stream = fc.constantFrom("stdout" as const, "stderr" as const);
    const offset = fc.nat({ max: Number.MAX_SAFE_INTEGER });
    const bytes = fc.uint8Array({ maxLength: 100 });
    fc.assert(
      fc.property(stream, offset, bytes, fc.nat(20), (stream, offset, bytes, before) => {
        const message = encodeOutput({ stream, offset, bytes });
        const larger = new Uint8Array(before + message.length);
        larger.set(message, before);
        const decoded = decodeOutput(larger.subarray(before));
        expect(decoded).toEqual({ stream, offset, bytes: Uint8Array.from(bytes) });
      }),
    );
  });

  it("has a header of a channel and an offset, low byte first", () => {
    const message = encodeOutput({ stream: "stderr", offset: 0x01_02_03, bytes: Buffer.from("x") });
    expect([...message]).toEqual([2, 3, 2, 1, 0, 0, 0, 0, 0, 0x78]);
  });

  it("is null where it is anything else", () => {
    expect(decodeOutput(new Uint8Array(8))).toBeNull();
    expect(decodeOutput(new Uint8Array(9))).toBeNull();
    expect(decodeOutput(Uint8Array.from([1, 255, 255, 255, 255, 255, 255, 255, 255]))).toBeNull();
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 30 }), (bytes) => {
        const decoded = decodeOutput(bytes);
        if (decoded !== null) expect(Number.isSafeInteger(decoded.offset)).toBe(true);
      }),
    );
  });
});

describe("a key as a subprotocol", () => {
  it("is the key again, beside others, and made of what a subprotocol may have", () => {
    fc.assert(
      fc.property(fc.string({ unit: "grapheme", maxLength: 60 }), (key) => {
        const name = keyProtocol(key);
        expect(name).toMatch(/^[A-Za-z0-9._-]+$/);
        expect(keyOfProtocols(`perdure.attach.v1, ${name} ,x`)).toBe(key);
      }),
    );
  });

  it("is none where there is none", () => {
    expect(keyOfProtocols(undefined)).toBeNull();
    expect(keyOfProtocols("perdure.attach.v1")).toBeNull();
    expect(keyOfProtocols("perdure.key.!")).toBeNull();
    expect(keyOfProtocols("perdure.key._w")).toBeNull();
    fc.assert(fc.property(fc.string(), (header) => void keyOfProtocols(header)));
  });
});

it.each([
  { type: "resize", rows: 0, columns: 80 },
  { type: "resize", rows: 24, columns: 4097 },
  { type: "resize", rows: 24 },
  { type: "signal", signal: 0 },
  { type: "signal", signal: 65 },
  { type: "credit", bytes: 0 },
  { type: "credit", bytes: 1.5 },
  { type: "end", extra: 1 },
  { type: "exit" },
  {},
])("a client's %j is refused", (message) => {
  expect(attachRequestSchema.safeParse(message).success).toBe(false);
});

it.each([{ window: "1023" }, { window: "16777217" }, { offset: "-1" }, { wakes: "no" }, { x: "" }])(
  "a query of %j is refused",
  (query) => {
    expect(attachQuerySchema.safeParse(query).success).toBe(false);
  },
);
