/** From nothing to the end of the first command, by E2B's SDK, twenty times in a row. */
import { found, judged, metric, type Findings } from "../benchmark.ts";
import type { Field } from "../ours/field.ts";
import { median } from "../statistic.ts";
import { openWire, timed } from "./client.ts";

const limit = {
  name: "create_to_first_command_ms",
  what: "20 in a row, median",
  relation: "≤",
  limit: 1000,
} as const;

const TIMES = 20;

export async function measureCreate(field: Field): Promise<Findings> {
  const { daemon, create } = await openWire(field);
  await daemon.quiet(1);
  const [whole, creates]: [number[], number[]] = [[], []];
  for (let i = 0; i < TIMES; i++) {
    const begin = performance.now();
    const sandbox = await create();
    creates.push(performance.now() - begin);
    const command = await timed(() => sandbox.commands.run("true"));
    whole.push(performance.now() - begin);
    field.context.progress(
      `create ${i + 1}/${TIMES}: ${creates.at(-1)?.toFixed(0)} ms, first command ${command.toFixed(0)} ms`,
    );
    await sandbox.kill();
  }
  return found({
    metrics: {
      create_to_first_command: metric("ms", whole),
      create: metric("ms", creates),
    },
    bars: [judged(limit, median(whole))],
  });
}
