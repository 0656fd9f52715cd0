import { expect, test } from "vitest";
import { parseOptions, RUNS_DEFAULT } from "./option.ts";

test("a name alone means the defaults", () => {
  expect(parseOptions(["wake"])).toEqual({
    list: false,
    name: "wake",
    json: false,
    check: false,
    runs: RUNS_DEFAULT,
    only: null,
  });
});

test("flags come in any order", () => {
  expect(parseOptions(["--json", "wake", "--runs", "3", "--check", "--only", "a,b"])).toMatchObject(
    {
      name: "wake",
      json: true,
      check: true,
      runs: 3,
      only: ["a", "b"],
    },
  );
});

test.each([
  [[]],
  [["wake", "sleep"]],
  [["wake", "--list"]],
  [["wake", "--fast"]],
  [["wake", "--runs"]],
  [["wake", "--runs", "0"]],
  [["wake", "--runs", "1.5"]],
  [["wake", "--only"]],
  [["wake", "--only", "a,,b"]],
])("%j makes no sense", (args) => {
  expect(parseOptions(args)).toBeNull();
});
