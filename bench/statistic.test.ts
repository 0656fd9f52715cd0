import { describe, expect, test } from "vitest";
import { median, quantile, ratioOfMedians, summarise } from "./statistic.ts";

describe("statistics", () => {
  test("the median of an odd count is the middle sample, of an even count the mean of the two", () => {
    expect(median([3, 1, 2])).toBe(2);
    expect(median([4, 1, 3, 2])).toBe(2.5);
  });

  test("quantiles interpolate, and their ends are the extremes", () => {
    const samples = [50, 10, 40, 20, 30];
    expect(quantile(samples, 0)).toBe(10);
    expect(quantile(samples, 1)).toBe(50);
    expect(quantile(samples, 0.95)).toBeCloseTo(48);
  });

  test("numbers sort as numbers and the samples stay as they were", () => {
    const samples = [100, 9, 20];
    expect(median(samples)).toBe(20);
    expect(samples).toEqual([100, 9, 20]);
  });

  test("no samples, a sample that is not a number, and an impossible quantile are refused", () => {
    expect(() => median([])).toThrow(RangeError);
    expect(() => median([1, Number.NaN])).toThrow(RangeError);
    expect(() => quantile([1], 1.1)).toThrow(RangeError);
  });

  test("a summary holds count, median, p95 and the extremes", () => {
    expect(summarise([1, 2, 3])).toEqual({ count: 3, median: 2, p95: 2.9, min: 1, max: 3 });
  });

  test("a ratio is of medians, and refuses to divide by nothing", () => {
    expect(ratioOfMedians([1, 100, 2], [4, 4, 400])).toBe(0.5);
    expect(() => ratioOfMedians([1], [0])).toThrow(RangeError);
  });
});
