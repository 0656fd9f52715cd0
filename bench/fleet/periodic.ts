/**
 * Periodic: how much a busy agent gets done while checkpoints of it are taken every ten seconds (six times
 * as often as by default), against none being taken, in turns.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { found, judged, metric, unmeasured, type Findings } from "../benchmark.ts";
import { Agent } from "../ours/agent.ts";
import type { Daemon } from "../ours/daemon.ts";
import { startDaemon, type Field } from "../ours/field.ts";
import { ratioOfMedians } from "../statistic.ts";
import { readCount, startBusy } from "./busy.ts";

const EVERY_MS = 10_000;
/** Three of them in each window. */
const WINDOW_MS = 3 * EVERY_MS;
const CUTS_MIN = 2;
const ROUNDS_MAX = 5;

const limit = {
  name: "periodic_overhead",
  what: "throughput of a busy agent with periodic checkpoints, over without",
  relation: "≥",
  limit: 0.97,
} as const;

export async function comparePeriodic(field: Field): Promise<Findings> {
  const { context, shape } = field;
  const daemon = await startDaemon(field, { spares: 0 });
  if (!("configure" in daemon.client)) {
    return found({ bars: [unmeasured(limit, "this build has no periodic checkpoints")] });
  }
  const agent = await Agent.create(daemon, shape);
  const ticker = agent.ticker(await startBusy(agent));
  const [with_, without]: [number[], number[]] = [[], []];
  const cuts: number[] = [];
  const rounds = Math.min(ROUNDS_MAX, context.runs);
  for (let i = 0; i < rounds; i++) {
    await daemon.client.configure(agent.name, { checkpointEveryMs: null });
    without.push(await rate(ticker, () => sleep(WINDOW_MS)));
    await daemon.client.configure(agent.name, { checkpointEveryMs: EVERY_MS });
    const taken = new Set<string>();
    with_.push(await rate(ticker, () => watch(daemon, agent, taken)));
    if (taken.size < CUTS_MIN) throw new Error(`${taken.size} checkpoints were taken meanwhile`);
    cuts.push(taken.size);
    context.progress(
      `periodic ${i + 1}/${rounds}: ${with_.at(-1)?.toFixed(0)} pages/s with ${taken.size} checkpoints, ` +
        `${without.at(-1)?.toFixed(0)} without`,
    );
  }
  const ratio = ratioOfMedians(with_, without);
  return found({
    metrics: {
      periodic_pages_per_s: metric("count", with_),
      periodic_pages_per_s_without: metric("count", without),
      periodic_checkpoints: metric("count", cuts),
    },
    ratios: { periodic_overhead: ratio },
    bars: [judged(limit, ratio)],
  });
}

/** Pages a second by the host's clock, while `work` goes on. */
async function rate(
  ticker: { pid: number; counter: number },
  work: () => Promise<unknown>,
): Promise<number> {
  const [begin, before] = [performance.now(), readCount(ticker)];
  await work();
  const [end, after] = [performance.now(), readCount(ticker)];
  return ((after - before) / (end - begin)) * 1000;
}

/** For one window: notes each checkpoint that was there; older ones go as newer ones come. */
async function watch({ client }: Daemon, { name }: Agent, taken: Set<string>): Promise<void> {
  const end = performance.now() + WINDOW_MS;
  while (performance.now() < end) {
    for (const { id, kind } of await client.checkpoints(name))
      if (kind === "periodic") taken.add(id);
    await sleep(Math.min(1_000, Math.max(0, end - performance.now())));
  }
}
