/**
 * Hot children: a VM that holds a sleeping agent's checkpoint already, taken by a fork of it, and by the
 * agent itself going back to it, against a plain wake from the same checkpoint, in turns. Making the hot
 * child comes before and is not counted. Timed at the client.
 */
import { found, judged, metric, unmeasured, type Findings } from "../benchmark.ts";
import { Agent, type WakeTimes } from "../ours/agent.ts";
import { startDaemon, type Field } from "../ours/field.ts";
import { ratioOfMedians } from "../statistic.ts";

const limit = {
  name: "hot_child_vs_wake",
  what: "a hot child until let out, over a plain wake (the slower of fork and restore)",
  relation: "≤",
  limit: 0.6,
} as const;

export async function compareHotChild(field: Field): Promise<Findings> {
  const { context, shape } = field;
  const daemon = await startDaemon(field, { spares: 1 });
  const { client } = daemon;
  if (!("hot" in client)) {
    return found({ bars: [unmeasured(limit, "this build has no hot children")] });
  }
  const agent = await Agent.create(daemon, shape);
  const [forks, restores, wakes]: [WakeTimes[], WakeTimes[], WakeTimes[]] = [[], [], []];
  const making: number[] = [];
  const makeReady = async (use: "fork" | "restore"): Promise<string> => {
    await daemon.quiet(1);
    const begin = performance.now();
    const { ready, checkpoint } = await client.hot(agent.name, { use, count: 1 });
    making.push(performance.now() - begin);
    if (ready !== 1) throw new Error(`${ready} hot children are ready`);
    await daemon.quiet(1);
    return checkpoint;
  };
  for (let i = 0; i < context.runs; i++) {
    await agent.sleep();
    await makeReady("fork");
    const { fork, ...forked } = await agent.fork();
    forks.push(assertHot(forked));
    await daemon.quiet(1);
    await fork.remove();
    const checkpoint = await makeReady("restore");
    restores.push(assertHot(await agent.restore(checkpoint)));
    await daemon.quiet(2);
    await agent.sleep();
    await daemon.quiet(1);
    wakes.push(await agent.wake());
    await daemon.quiet(2);
    context.progress(
      `hot ${i + 1}/${context.runs}: fork ${told(forks)}, restore ${told(restores)}, wake ${told(wakes)}`,
    );
  }
  const plain = clientMs(wakes);
  const ratios = {
    hot_fork_vs_wake: ratioOfMedians(clientMs(forks), plain),
    hot_restore_vs_wake: ratioOfMedians(clientMs(restores), plain),
  };
  return found({
    metrics: {
      hot_fork_ready: metric("ms", clientMs(forks)),
      hot_restore_ready: metric("ms", clientMs(restores)),
      hot_wake_beside: metric("ms", plain),
      hot_made: metric("ms", making),
    },
    ratios,
    bars: [judged(limit, Math.max(...Object.values(ratios)))],
  });
}

/** Nothing was put into its memory, and no disk was attached: that was done before. */
function assertHot(times: WakeTimes): WakeTimes {
  if ("devices" in times.report.phases) throw new Error("No hot child was taken");
  return times;
}

function clientMs(times: readonly WakeTimes[]): number[] {
  return times.map((each) => each.clientMs);
}

function told(times: readonly WakeTimes[]): string {
  const last = times.at(-1);
  if (last === undefined) return "-";
  return `${last.clientMs.toFixed(0)} ms ${JSON.stringify(last.report.phases)}`;
}
