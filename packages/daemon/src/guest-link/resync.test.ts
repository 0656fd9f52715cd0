import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { cpuMs } from "./fake/measure.ts";
import { encodeFrame, frameType, u16, u32 } from "./frame.ts";
import {
  DISCARD_BYTES_MAX,
  encodeResync,
  isSendable,
  resyncMagic,
  splitPoints,
  SyncedScanner,
  syncedMagic,
} from "./resync.ts";

const nonce = Buffer.from("0123456789abcdef");

function synced(of = nonce, version = 1, epoch = 7, reserved = 0): Buffer {
  return Buffer.concat([syncedMagic, of, u32(version), u32(epoch), u32(reserved), u32(0)]);
}

function scan(chunks: readonly Uint8Array[]): { rest: string | null; discarded: number } {
  const scanner = new SyncedScanner(nonce, 7);
  for (const [i, chunk] of chunks.entries()) {
    const rest = scanner.push(chunk);
    if (rest === null) continue;
    const whole = Buffer.concat([rest, ...chunks.slice(i + 1)]);
    return { rest: whole.toString("latin1"), discarded: scanner.discardedBytes };
  }
  return { rest: null, discarded: scanner.discardedBytes };
}

describe("resync", () => {
  test("RESYNC has the layout of the page", () => {
    const greeting = Buffer.from(encodeResync(nonce, 7, 2 ** 40));
    expect(greeting.length).toBe(48);
    expect(greeting.subarray(0, 16).toString("latin1")).toBe("\x89PERDURE-RESYNC\n");
    expect(greeting.subarray(16, 32)).toEqual(nonce);
    expect(greeting.readUInt32LE(32)).toBe(3);
    expect(greeting.readUInt32LE(36)).toBe(7);
    expect(greeting.readBigUInt64LE(40)).toBe(2n ** 40n);
  });

  test("SYNCED is found after anything, wherever the bytes are cut", () => {
    const leftOvers = fc.oneof(
      fc.uint8Array({ maxLength: 200 }),
      fc.constantFrom(
        syncedMagic,
        Buffer.concat([syncedMagic, nonce.subarray(0, 8)]),
        synced(Buffer.alloc(16)),
        Buffer.alloc(100, 0x89),
      ),
    );
    fc.assert(
      fc.property(
        fc.array(leftOvers, { maxLength: 4 }),
        fc.array(fc.nat(600), { maxLength: 30 }),
        (before, places) => {
          const bytes = Buffer.concat([...before, synced(), Buffer.from("rest")]);
          const at = [...new Set(places)].sort((a, b) => a - b);
          const chunks = [...at, bytes.length].map((end, i) => bytes.subarray(at[i - 1] ?? 0, end));
          const discarded = Buffer.concat(before).length;
          expect(scan(chunks)).toEqual({ rest: "rest", discarded });
        },
      ),
    );
  });

  test.each([
    ["version 0", synced(nonce, 0)],
    ["a version above the host's", synced(nonce, 4)],
    ["another epoch", synced(nonce, 1, 8)],
    ["a reserved part that is not zero", synced(nonce, 1, 7, 1)],
  ])("SYNCED with %s breaks the protocol", (_name, bytes) => {
    expect(() => scan([bytes])).toThrow(
      expect.objectContaining({ code: "guest_protocol_violation" }),
    );
  });

  test("128 MiB without an answer break the protocol, in bounded time and memory", () => {
    const scanner = new SyncedScanner(nonce, 7);
    const chunk = Buffer.alloc(65_536, 0x89);
    const chunks = DISCARD_BYTES_MAX / chunk.length;
    const spentMs = cpuMs(() => {
      for (let i = 0; i < chunks; i++) expect(scanner.push(chunk)).toBeNull();
    });
    expect(() => scanner.push(chunk)).toThrow("no answer to RESYNC");
    expect(spentMs).toBeLessThan(5_000);
  });

  test("no sequence of frames forms RESYNC's magic, whatever the payload", () => {
    const part = fc.oneof(
      fc.uint8Array({ maxLength: 20 }),
      fc.nat(16).map((length) => resyncMagic.subarray(0, length)),
      fc.nat(16).map((from) => resyncMagic.subarray(from)),
    );
    fc.assert(
      fc.property(fc.array(part, { maxLength: 12 }), fc.boolean(), (parts, ends) => {
        const payload = Buffer.concat(parts);
        const frames: Uint8Array[] = [];
        let from = 0;
        for (const point of [...splitPoints(payload), payload.length]) {
          frames.push(encodeFrame(frameType.data, 1, payload.subarray(from, point)));
          from = point;
        }
        // Its length is 10, the last byte of the magic.
        frames.push(encodeFrame(ends ? frameType.end : frameType.data, 1, u16(0)));
        expect(Buffer.concat(frames).includes(resyncMagic)).toBe(false);
      }),
      { numRuns: 3000 },
    );
  });

  test("an END after the magic without its last byte does not complete it", () => {
    const payload = resyncMagic.subarray(0, 15);
    expect(splitPoints(payload)).toEqual([7]);
    expect(isSendable(payload)).toBe(false);
    expect(isSendable(resyncMagic.subarray(0, 13))).toBe(true);
  });
});
