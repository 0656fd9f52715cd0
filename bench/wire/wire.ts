/** `wire`: what a client of E2B pays, with E2B's own SDK, beside ours on the same agent. */
import type { Benchmark } from "../benchmark.ts";
import { openField, type Field } from "../ours/field.ts";
import { chosen, runParts, type Parts } from "../part.ts";
import { measureCreate } from "./create.ts";
import { compareEgress } from "./egress.ts";
import { compareFiles } from "./files.ts";
import { countMethods } from "./methods.ts";
import { compareRun } from "./run.ts";
import { compareStreams } from "./streams.ts";

const parts: Parts<Field> = {
  methods: countMethods,
  run: compareRun,
  files: compareFiles,
  create: measureCreate,
  streams: compareStreams,
  egress: compareEgress,
};

export const wire: Benchmark = {
  name: "wire",
  about: `E2B's SDK beside ours, files, creates, streams and the way out (${Object.keys(parts).join(", ")})`,
  async run(context) {
    const wanted = chosen(parts, context.only);
    return runParts(context, wanted, { place: await openField(context) });
  },
};
