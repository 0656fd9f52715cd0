import { expect, test } from "vitest";
import { clockArguments, movableClock } from "./kernel-clock.ts";

test("under emulation a kernel is told to trust the counter, and how fast it counts", () => {
  expect(movableClock("tcg", 2_596_146)).toBe("tsc");
  expect(clockArguments("tcg", 2_596_146)).toEqual([
    "tsc=reliable",
    "tsc_early_khz=2596146",
    "nowatchdog",
    "rcupdate.rcu_cpu_stall_suppress=1",
  ]);
});

test("a counter of an unknown rate is not trusted, and under KVM nothing is changed", () => {
  for (const [accelerator, khz] of [
    ["tcg", 0],
    ["kvm", 2_596_146],
  ] as const) {
    expect(movableClock(accelerator, khz)).toBeUndefined();
    expect(clockArguments(accelerator, khz)).toEqual([]);
  }
});
