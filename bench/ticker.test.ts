import { expect, test } from "vitest";
import { largestStep, newMark, tickerArgv } from "./ticker.ts";

test("the largest step is found, and a ticker that never ticked is an error", () => {
  expect(largestStep([0, 1, 31, 33])).toBe(30);
  expect(() => largestStep([5])).toThrow(/does not tick/);
});

test("the command line does not hold the mark itself", () => {
  const mark = newMark();
  expect(tickerArgv(mark).join(" ")).not.toContain(mark.toString("hex"));
});
