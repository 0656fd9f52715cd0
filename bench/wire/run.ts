/** One command on an awake agent, by E2B's SDK and by ours, in turns: the same line of the same shell, to its end. */
import { found, judged, metric, type Findings } from "../benchmark.ts";
import type { Field } from "../ours/field.ts";
import { ratioOfMedians } from "../statistic.ts";
import { agentOf, openWire, timed } from "./client.ts";

const limit = {
  name: "run_true_vs_native",
  what: "commands.run('true'), awake agent, over the same bash line through our own SDK",
  relation: "≤",
  limit: 1.5,
} as const;

/** One is quick: more of them than of other things. */
const CALLS_PER_RUN = 10;
const WARM_CALLS = 10;

export async function compareRun(field: Field): Promise<Findings> {
  const { daemon, create } = await openWire(field);
  const sandbox = await create();
  const agent = agentOf(sandbox);
  const theirs = (): Promise<number> => timed(() => sandbox.commands.run("true"));
  const ours = (): Promise<number> =>
    timed(async () => {
      const { exitCode } = await daemon.client.run(agent, ["/bin/bash", "-l", "-c", "true"], {
        user: "user",
      });
      if (exitCode !== 0) throw new Error(`"true" ended with ${String(exitCode)}`);
    });
  await daemon.quiet(2);
  for (let i = 0; i < WARM_CALLS; i++) await theirs().then(ours);
  const [wire, native]: [number[], number[]] = [[], []];
  for (let i = 0; i < field.context.runs * CALLS_PER_RUN; i++) {
    wire.push(await theirs());
    native.push(await ours());
  }
  const ratio = ratioOfMedians(wire, native);
  return found({
    metrics: { run_true: metric("ms", wire), run_true_native: metric("ms", native) },
    ratios: { run_true_vs_native: ratio },
    bars: [judged(limit, ratio)],
  });
}
