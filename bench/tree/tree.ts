/** `tree`: what a search pays that tries things in copies of an agent and goes back: fork, rollback, storage. */
import type { Benchmark } from "../benchmark.ts";
import { openField, type Field } from "../ours/field.ts";
import { chosen, runParts, type Parts } from "../part.ts";
import { compareFork, compareRollback } from "./route.ts";
import { compareHotChild } from "./hot-child.ts";
import { measureSearch } from "./search.ts";

const parts: Parts<Field> = {
  fork: compareFork,
  rollback: compareRollback,
  hot: compareHotChild,
  gc: measureSearch,
};

export const tree: Benchmark = {
  name: "tree",
  about: `fork, rollback, hot children and the storage of a search tree (${Object.keys(parts).join(", ")})`,
  async run(context) {
    const wanted = chosen(parts, context.only);
    return runParts(context, wanted, { place: await openField(context) });
  },
};
