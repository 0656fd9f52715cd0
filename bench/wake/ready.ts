/**
 * Ready: from the request to wake until the agent is let out, against stock QEMU's restore of the same
 * guest (from `migrate-incoming` in a process that was started before, until its guest answers).
 */
import { bar, metric, found, type Findings, type Metric } from "../benchmark.ts";
import { Agent, type WakeTimes } from "../ours/agent.ts";
import { overheadOf, type Overhead } from "../proc.ts";
import { ratioOfMedians } from "../statistic.ts";
import { StockGuest, type SavedGuest } from "../stock/stock-guest.ts";
import { settle, type Place } from "./bench-place.ts";
import { startBallast } from "./load.ts";

const MIB = 1024 * 1024;

export interface ReadyOptions {
  readonly name: string;
  readonly ballastBytes: number;
  /** VM processes that must be there before a wake: the spare in the pool, if one is to count on. */
  readonly spares: 0 | 1;
  readonly limit: number;
}

/** @param saved a stock guest with the same load */
export async function compareReady(
  place: Place,
  options: ReadyOptions,
  saved: SavedGuest,
): Promise<Findings> {
  const { context, daemon, shape, stock } = place;
  const { name, ballastBytes, spares } = options;
  const agent = await Agent.create(daemon, shape);
  const ballast = await startBallast(agent, ballastBytes);
  const wakes: WakeTimes[] = [];
  const running: number[] = [];
  const ready: number[] = [];
  const sleeps: number[] = [];
  const overhead: Overhead[] = [];
  for (let i = 0; i < context.runs; i++) {
    await settle();
    sleeps.push(await agent.sleep());
    const restored = await StockGuest.restore(stock, saved, () => daemon.quiet(spares));
    running.push(restored.runningMs);
    ready.push(restored.readyMs);
    await daemon.quiet(spares);
    const woken = await agent.wake();
    wakes.push(woken);
    await daemon.quiet(1);
    overhead.push(overheadOf(agent.pid(), shape.memoryBytes));
    context.progress(
      `${name} ready ${i + 1}/${context.runs}: ${woken.clientMs.toFixed(0)} ms ${JSON.stringify(woken.report.phases)}, ` +
        `stock restore ${restored.readyMs.toFixed(0)} ms`,
    );
  }
  await ballast.verify();
  await agent.remove();
  const clientMs = wakes.map((wake) => wake.clientMs);
  const ratio = ratioOfMedians(clientMs, ready);
  return found({
    metrics: {
      [`${name}_ready`]: metric("ms", clientMs),
      ...phaseMetrics(name, wakes),
      [`${name}_stock_restore`]: metric("ms", ready),
      [`${name}_stock_restore_running`]: metric("ms", running),
      [`${name}_sleep`]: metric("ms", sleeps),
      [`${name}_overhead`]: mebibytes(overhead.map(({ wholeBytes }) => wholeBytes)),
      [`${name}_overhead_base`]: mebibytes(overhead.map(({ baseBytes }) => baseBytes)),
    },
    ratios: {
      [`${name}_ready_vs_stock_restore`]: ratio,
      [`${name}_ready_vs_stock_running`]: ratioOfMedians(clientMs, running),
    },
    bars: [bar(`${name}_ready_vs_stock_restore`, ratio, options.limit)],
  });
}

function mebibytes(samples: readonly number[]): Metric {
  return metric(
    "MiB",
    samples.map((bytes) => bytes / MIB),
  );
}

/** Where the time of the wakes went, as the wake reports tell. */
function phaseMetrics(name: string, wakes: readonly WakeTimes[]): Record<string, Metric> {
  const phases = new Set(wakes.flatMap(({ report }) => Object.keys(report.phases)));
  return Object.fromEntries(
    [...phases].map((phase) => {
      const samples = wakes.flatMap(({ report }) => report.phases[phase] ?? []);
      return [`${name}_ready.${phase}`, metric("ms", samples)];
    }),
  );
}
