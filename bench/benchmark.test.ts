import { expect, test } from "vitest";
import { bar, joined, judged, metric, unmeasured } from "./benchmark.ts";

test("a bar holds at its limit, not above it, and never for what is not a number", () => {
  expect(bar("x", 1, 1).holds).toBe(true);
  expect(bar("x", 1.0001, 1).holds).toBe(false);
  expect(bar("x", Number.NaN, 1).holds).toBe(false);
});

test("a bar holds from a limit upwards, or at one value, where it is promised so", () => {
  const least = { name: "x", relation: "≥", limit: 0.97 } as const;
  expect(judged(least, 0.97).holds).toBe(true);
  expect(judged(least, 0.969).holds).toBe(false);
  expect(judged(least, Number.NaN).holds).toBe(false);
  const none = { name: "x", relation: "=", limit: 0 } as const;
  expect(judged(none, 0).holds).toBe(true);
  expect(judged(none, 1).holds).toBe(false);
  expect(judged(none, Number.NaN).holds).toBe(false);
});

test("a bar that was not measured says why and does not hold", () => {
  const bar = unmeasured({ name: "x", relation: "≤", limit: 1 }, "no such thing");
  expect(bar).toMatchObject({ value: null, holds: false, missing: "no such thing" });
});

test("findings of parts are joined in order", () => {
  const part = (name: string) => ({
    metrics: { [name]: metric("ms", [1]) },
    ratios: { [name]: 2 },
    bars: [bar(name, 1, 2)],
    failures: [name],
  });
  const whole = joined([part("a"), part("b")]);
  expect(Object.keys(whole.metrics)).toEqual(["a", "b"]);
  expect(whole.ratios).toEqual({ a: 2, b: 2 });
  expect(whole.bars.map(({ name }) => name)).toEqual(["a", "b"]);
  expect(whole.failures).toEqual(["a", "b"]);
});
