/** Hot child: a VM that was restored ahead of time and is only let out, against a plain wake. */
import { found, unmeasured, type Findings } from "../benchmark.ts";

const limit = {
  name: "hot_child_vs_wake",
  what: "a hot child until let out, over a plain wake",
  relation: "≤",
  limit: 0.6,
} as const;

export function compareHotChild(): Promise<Findings> {
  return Promise.resolve(found({ bars: [unmeasured(limit, "this build has no hot children")] }));
}
