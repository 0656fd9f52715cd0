/** `fleet`: what many agents cost: begun at once, asleep, listed. */
import type { Benchmark } from "../benchmark.ts";
import { openField, type Field } from "../ours/field.ts";
import { chosen, runParts, type Parts } from "../part.ts";
import { measureAsleep } from "./asleep.ts";
import { measureCreates, measureWakes } from "./at-once.ts";
import { measureCrowd } from "./crowd.ts";
import { comparePeriodic } from "./periodic.ts";

const parts: Parts<Field> = {
  create50: measureCreates,
  asleep200: measureAsleep,
  crowd: measureCrowd,
  wakes20: measureWakes,
  periodic: comparePeriodic,
};

export const fleet: Benchmark = {
  name: "fleet",
  about: `many agents, begun at once and asleep (${Object.keys(parts).join(", ")})`,
  async run(context) {
    const wanted = chosen(parts, context.only);
    return runParts(context, wanted, { place: await openField(context) });
  },
};
