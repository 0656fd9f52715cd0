import { expect, test } from "vitest";
import { bar, found } from "./benchmark.ts";
import { Cleanup } from "./cleanup.ts";
import { chosen, runParts, type Parts } from "./part.ts";

const parts: Parts<Cleanup> = {
  good: () => Promise.resolve(found({ bars: [bar("good", 1, 2)] })),
  bad: (cleanup) => {
    cleanup.add("what it made", () => void undone.push("bad"));
    return Promise.reject(new Error("broken"));
  },
};
const undone: string[] = [];

test("a part that fails is undone and said, and the others are measured", async () => {
  const said: string[] = [];
  const progress = (text: string): void => {
    said.push(text);
  };
  const context = { cleanup: new Cleanup(progress), progress };
  let failed = 0;
  const { bars, failures } = await runParts(context, chosen(parts, ["bad", "good"]), {
    place: (cleanup) => cleanup,
    failed: () => {
      failed++;
      return Promise.resolve();
    },
  });
  expect(bars.map(({ name }) => name)).toEqual(["good"]);
  expect(failures).toEqual(['part "bad": broken']);
  expect(undone).toEqual(["bad"]);
  expect(failed).toBe(1);
});

test("all parts are chosen unless some are asked for, and an unknown one is refused", () => {
  expect(Object.keys(chosen(parts, null))).toEqual(["good", "bad"]);
  expect(Object.keys(chosen(parts, ["bad"]))).toEqual(["bad"]);
  expect(() => chosen(parts, ["ugly"])).toThrow(/no part "ugly"/);
});
