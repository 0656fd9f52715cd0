import { expect, test } from "vitest";
import { bar, joined, metric } from "./benchmark.ts";

test("a bar holds at its limit, not above it, and never for what is not a number", () => {
  expect(bar("x", 1, 1).holds).toBe(true);
  expect(bar("x", 1.0001, 1).holds).toBe(false);
  expect(bar("x", Number.NaN, 1).holds).toBe(false);
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
