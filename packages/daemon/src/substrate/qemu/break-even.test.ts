import { expect, test } from "vitest";
import { BreakEven } from "./break-even.ts";

const MIB = 1024 * 1024;

test("what starts slowly and injects quickly needs a base of its own later", () => {
  const evens = [
    [50, 1_000_000],
    [100, 1_000_000],
    [100, 2_000_000],
  ].map(([startMs = 0, bytesPerMs = 0]) => {
    const even = new BreakEven();
    even.started(startMs);
    even.injected(100 * bytesPerMs, 100);
    return even.bytes;
  });
  expect(evens).toEqual([50_000_000, 100_000_000, 200_000_000]);
});

test("one busy moment, and what is too little to tell, change nothing", () => {
  const even = new BreakEven();
  for (let i = 0; i < 5; i++) even.started(80);
  even.started(5_000);
  even.injected(4096, 40);
  expect(even.bytes).toBe(80_000_000);
});

test("the answer stays within bounds", () => {
  const even = new BreakEven();
  even.started(1);
  expect(even.bytes).toBe(32 * MIB);
  for (let i = 0; i < 20; i++) even.started(20_000);
  expect(even.bytes).toBe(256 * MIB);
});
