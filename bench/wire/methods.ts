/** How many of the methods that we claim do what they should, in every version of E2B's SDK, five sleeps and wakes included. */
import { inspect } from "node:util";
import { runE2bMethods, sdkVersions } from "../../test/e2e/e2b-methods.ts";
import { found, judged, metric, type Findings } from "../benchmark.ts";
import type { Field } from "../ours/field.ts";
import { openWire } from "./client.ts";

const promise = {
  name: "e2b_methods_passing",
  what: "public methods that we claim, both SDK versions, five sleep/wake cycles included",
  relation: "=",
} as const;

export async function countMethods(field: Field): Promise<Findings> {
  const { connection } = await openWire(field);
  process.env["E2B_API_KEY"] = connection.apiKey;
  process.env["E2B_API_URL"] = connection.apiUrl;
  process.env["E2B_SANDBOX_URL"] = connection.sandboxUrl;
  let [passing, all] = [0, 0];
  for (const [version, load] of sdkVersions) {
    for await (const { method, error } of runE2bMethods(await load())) {
      all++;
      if (error === null) passing++;
      else field.context.progress(`SDK ${version}, ${method}: ${inspect(error)}`);
    }
  }
  return found({
    metrics: { e2b_methods: metric("count", [all]) },
    bars: [judged({ ...promise, limit: all }, passing)],
  });
}
