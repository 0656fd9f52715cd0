/** Loop: how late the daemon's main loop is while ten agents sleep and wake at once. */
import { bar, metric, found, type Findings } from "../benchmark.ts";
import { Agent } from "../ours/agent.ts";
import type { Place } from "./bench-place.ts";

const AGENTS = 10;
const ROUNDS = 3;

export async function measureLoop({ context, daemon, shape }: Place): Promise<Findings> {
  const agents: Agent[] = [];
  for (let i = 0; i < AGENTS; i++) agents.push(await Agent.create(daemon, shape));
  await daemon.quiet(AGENTS);
  const [sleeps, wakes]: [number[], number[]] = [[], []];
  await daemon.takeLoopDelay();
  for (let round = 0; round < ROUNDS; round++) {
    context.progress(`loop delay ${round + 1}/${ROUNDS}`);
    sleeps.push(...(await Promise.all(agents.map((agent) => agent.sleep()))));
    const woken = await Promise.all(agents.map((agent) => agent.wake()));
    wakes.push(...woken.map(({ clientMs }) => clientMs));
  }
  const delay = await daemon.takeLoopDelay();
  await Promise.all(agents.map((agent) => agent.remove()));
  return found({
    metrics: {
      loop_delay_p50: metric("ms", [delay.p50]),
      loop_delay_p99: metric("ms", [delay.p99]),
      loop_delay_max: metric("ms", [delay.max]),
      loop_delay_samples: metric("count", [delay.count]),
      ten_at_once_sleep: metric("ms", sleeps),
      ten_at_once_wake: metric("ms", wakes),
    },
    bars: [bar("loop_delay_p99_ms", delay.p99, 20)],
  });
}
