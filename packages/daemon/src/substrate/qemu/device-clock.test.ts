import fc from "fast-check";
import { expect, test } from "vitest";
import { advanceDeviceClock, readDeviceClock } from "./device-clock.ts";
import { qemuLimits } from "./limit.ts";

/** The first bytes that QEMU 7.2 wrote for a guest of one CPU, and of two; what follows is the CPU's section. */
const saved = {
  one: "5145564d0000000304000000000574696d65720000000000000002000000136d39476a0000000000000000000000077b9e35a47e00000000",
  two: "5145564d0000000304000000000574696d6572000000000000000200000011eb136fff000000000000000000000006e6d8c4f07e00000000",
};
const rest = "04000000040a6370755f636f6d6d6f6e0000000000000001";
const state = (hex = saved.one, after = rest): Buffer => Buffer.from(hex + after, "hex");
const tscHz = 2_596_121_000;

test("the clock of states that QEMU saved is read", () => {
  expect(readDeviceClock(state(saved.one))).toEqual({ ticks: 83436849002n, ns: 32138737060n });
  expect(readDeviceClock(state(saved.two, ""))).toEqual({ ticks: 76958363647n, ns: 29642769648n });
});

test("both counts move by the same time, and nothing else changes", () => {
  const before = state();
  const moved = advanceDeviceClock(before, 3_600_000, tscHz);
  expect(readDeviceClock(moved)).toEqual({
    ticks: 83436849002n + 3600n * BigInt(tscHz),
    ns: 32138737060n + 3600n * 1_000_000_000n,
  });
  const back = Buffer.from(moved);
  before.copy(back, 27, 27, 35);
  before.copy(back, 43, 43, 51);
  expect(back).toEqual(before);
  expect(before).toEqual(state());
});

test("the longest advance is counted exactly, and no advance changes nothing", () => {
  const ms = qemuLimits.clockAdvanceMs;
  const { ticks, ns } = readDeviceClock(advanceDeviceClock(state(), ms, tscHz));
  expect(ticks - 83436849002n).toBe((BigInt(ms) * BigInt(tscHz)) / 1000n);
  expect(ns - 32138737060n).toBe(BigInt(ms) * 1_000_000n);
  expect(Buffer.from(advanceDeviceClock(state(), 0, tscHz))).toEqual(state());
});

test("an advance or a rate that cannot be is refused", () => {
  const refuses = (ms: number, hz = tscHz): void =>
    expect(() => advanceDeviceClock(state(), ms, hz)).toThrow(/Cannot move the clock/);
  refuses(-1);
  refuses(Number.NaN);
  refuses(Number.POSITIVE_INFINITY);
  refuses(qemuLimits.clockAdvanceMs + 1);
  refuses(1, 0);
  refuses(1, Number.NaN);
  refuses(1, qemuLimits.tscHzMax + 1);
});

test("a state that does not begin with exactly this section is refused", () => {
  const refuses = (bytes: Uint8Array, why: RegExp): void =>
    expect(() => advanceDeviceClock(bytes, 1, tscHz)).toThrow(why);
  const altered = (offset: number, byte: number): Buffer => {
    const bytes = state();
    bytes[offset] = byte;
    return bytes;
  };
  refuses(Buffer.alloc(0), /too short/);
  refuses(state(saved.one, "").subarray(0, 55), /too short/);
  refuses(altered(0, 0), /does not begin/);
  refuses(altered(7, 4), /does not begin/); // version of the stream
  refuses(altered(8, 1), /does not begin/); // another type of section
  refuses(altered(14, 0x54), /does not begin/); // name
  refuses(altered(26, 3), /does not begin/); // version of the section
  refuses(altered(40, 1), /another form/); // the number that is not used
  refuses(altered(51, 5), /another form/); // a subsection where the footer belongs
  refuses(altered(55, 9), /another form/); // the footer of another section
  refuses(altered(27, 0x80), /out of range/);
  refuses(altered(43, 0x7f), /out of range/);
  refuses(Buffer.concat([state(), state().subarray(8)]), /second clock/);
});

test("whatever bytes it is given, they are moved by the right time or refused", () => {
  const flip = fc.record({ at: fc.nat(90), byte: fc.integer({ min: 0, max: 255 }) });
  const hostile = fc.oneof(
    fc.uint8Array({ maxLength: 256 }),
    fc.tuple(fc.array(flip, { maxLength: 4 }), fc.nat(120)).map(([flips, length]) => {
      const bytes = state();
      for (const { at, byte } of flips) bytes[at % bytes.length] = byte;
      return Uint8Array.from(bytes.subarray(0, length));
    }),
  );
  let moved = 0;
  fc.assert(
    fc.property(hostile, fc.nat(qemuLimits.clockAdvanceMs), (bytes, ms) => {
      const copy = Uint8Array.from(bytes);
      let after: Uint8Array;
      try {
        after = advanceDeviceClock(bytes, ms, tscHz);
      } catch (error) {
        expect(error).toMatchObject({ code: "machine_failed" });
        expect(bytes).toEqual(copy);
        return;
      }
      moved++;
      const [was, is] = [readDeviceClock(bytes), readDeviceClock(after)];
      expect(is.ns - was.ns).toBe(BigInt(ms) * 1_000_000n);
      expect(is.ticks - was.ticks).toBe((BigInt(ms) * BigInt(tscHz)) / 1000n);
      expect(after.length).toBe(bytes.length);
    }),
    { numRuns: 2000 },
  );
  expect(moved).toBeGreaterThan(20);
});
