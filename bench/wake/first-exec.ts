/** First exec: how long `exec true` takes right after a wake, from the call until its exit is known. */
import { bar, metric, found, type Findings } from "../benchmark.ts";
import { run } from "../inside.ts";
import { Agent } from "../ours/agent.ts";
import type { Place } from "./bench-place.ts";

const WAKES_MIN = 30;

export async function measureFirstExec({ context, daemon, shape }: Place): Promise<Findings> {
  const agent = await Agent.create(daemon, shape);
  const [first, second]: [number[], number[]] = [[], []];
  const wakes = Math.max(WAKES_MIN, context.runs);
  for (let i = 0; i < wakes; i++) {
    await agent.sleep();
    await daemon.quiet(1);
    await agent.wake();
    first.push(await timed(agent));
    second.push(await timed(agent));
    context.progress(`first exec ${i + 1}/${wakes}: ${first.at(-1)?.toFixed(0)} ms`);
  }
  await agent.remove();
  const worst = Math.max(...first);
  return found({
    metrics: { first_exec: metric("ms", first), second_exec: metric("ms", second) },
    bars: [bar("first_exec_max_ms", worst, 1000)],
  });
}

async function timed(agent: Agent): Promise<number> {
  const begin = performance.now();
  await run(agent, ["true"]);
  return performance.now() - begin;
}
