/** Periodic: how much a busy agent gets done while checkpoints of it are taken, against none being taken. */
import { found, unmeasured, type Findings } from "../benchmark.ts";

const limit = {
  name: "periodic_overhead",
  what: "throughput of a busy agent with periodic checkpoints, over without",
  relation: "≥",
  limit: 0.97,
} as const;

export function comparePeriodic(): Promise<Findings> {
  return Promise.resolve(
    found({ bars: [unmeasured(limit, "this build has no periodic checkpoints")] }),
  );
}
