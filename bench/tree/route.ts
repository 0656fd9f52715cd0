/**
 * Fork and rollback against a plain wake of the same agent, in turns. All are timed at the client, from
 * the call until its answer: the agent was let out by then. A spare is ready for each.
 */
import { found, judged, metric, type Findings } from "../benchmark.ts";
import { run } from "../inside.ts";
import { Agent, type WakeTimes } from "../ours/agent.ts";
import { startDaemon, type Field } from "../ours/field.ts";
import { ratioOfMedians } from "../statistic.ts";

const forkLimit = {
  name: "fork_ready_vs_wake",
  what: "fork of a checkpoint until let out, over a plain wake",
  relation: "≤",
  limit: 1.5,
} as const;

const rollbackLimit = {
  name: "rollback_vs_wake",
  what: "restore to the parent until let out, over a plain wake",
  relation: "≤",
  limit: 1.3,
} as const;

/** The checkpoint of a sleeping agent, continued as another agent and as itself. */
export async function compareFork(field: Field): Promise<Findings> {
  const { context, shape } = field;
  const daemon = await startDaemon(field, { spares: 1 });
  const agent = await Agent.create(daemon, shape);
  const [forks, wakes]: [WakeTimes[], WakeTimes[]] = [[], []];
  for (let i = 0; i < context.runs; i++) {
    await daemon.quiet(2);
    await agent.sleep();
    await daemon.quiet(1);
    const { fork, ...times } = await agent.fork();
    forks.push(times);
    await daemon.quiet(2);
    await fork.remove();
    await daemon.quiet(1);
    wakes.push(await agent.wake());
    context.progress(`fork ${i + 1}/${context.runs}: ${told(times)}, wake ${told(wakes.at(-1))}`);
  }
  return compared(forkLimit, "fork", forks, wakes);
}

/**
 * An awake agent went on from a checkpoint that has a name (the parent), wrote a file, and is sent back.
 * What it was is kept before, as `restore` promises: that counts. The same of an agent that sleeps, where
 * it is kept already, is shown beside it.
 */
export async function compareRollback(field: Field): Promise<Findings> {
  const { context, shape } = field;
  const daemon = await startDaemon(field, { spares: 1 });
  const agent = await Agent.create(daemon, shape);
  await agent.checkpoint("parent");
  const [awake, asleep, wakes]: [WakeTimes[], WakeTimes[], WakeTimes[]] = [[], [], []];
  for (let i = 0; i < context.runs; i++) {
    await daemon.quiet(2);
    await agent.sleep();
    await daemon.quiet(1);
    wakes.push(await agent.wake());
    await run(agent, writeStep);
    await daemon.quiet(2);
    awake.push(await agent.restore("parent"));
    await run(agent, hasNoStep);
    await run(agent, writeStep);
    await daemon.quiet(2);
    await agent.sleep();
    await daemon.quiet(1);
    asleep.push(await agent.restore("parent"));
    await run(agent, hasNoStep);
    context.progress(
      `rollback ${i + 1}/${context.runs}: awake ${told(awake.at(-1))}, asleep ${told(asleep.at(-1))}, ` +
        `wake ${told(wakes.at(-1))}`,
    );
  }
  const beside = compared(null, "rollback_asleep", asleep, wakes);
  const { metrics, ratios, bars } = compared(rollbackLimit, "rollback", awake, wakes);
  return found({
    metrics: { ...metrics, ...beside.metrics },
    ratios: { ...ratios, ...beside.ratios },
    bars,
  });
}

const step = "/home/user/step";
const writeStep = ["sh", "-c", `head -c 65536 /dev/urandom > ${step}`];
/** It is back where the file was not written yet. */
const hasNoStep = ["sh", "-c", `test ! -e ${step}`];

function compared(
  limit: typeof forkLimit | typeof rollbackLimit | null,
  name: string,
  ours: readonly WakeTimes[],
  wakes: readonly WakeTimes[],
): Findings {
  const ratio = ratioOfMedians(clientMs(ours), clientMs(wakes));
  return found({
    metrics: {
      [`${name}_ready`]: metric("ms", clientMs(ours)),
      [`${name}_let_out_by_report`]: metric("ms", ours.map(reportMs)),
      [`${name}_wake_beside`]: metric("ms", clientMs(wakes)),
    },
    ratios: { [`${name}_vs_wake`]: ratio },
    bars: limit === null ? [] : [judged(limit, ratio)],
  });
}

function clientMs(times: readonly WakeTimes[]): number[] {
  return times.map((each) => each.clientMs);
}

/** From the time when a machine was asked for until the thaw, as the wake report has it. */
function reportMs({ report }: WakeTimes): number {
  return report.phases["total"] ?? Number.NaN;
}

function told(times: WakeTimes | undefined): string {
  if (times === undefined) return "-";
  return `${times.clientMs.toFixed(0)} ms ${JSON.stringify(times.report.phases)}`;
}
