/**
 * Pause: how long a program inside stands still for a live checkpoint, against stock QEMU's save of the
 * same guest: from `stop` until the file is complete, not counting that it must go on again, nor that
 * the file is not on the disk yet. Ours holds the disk's cut, too.
 */
import { open, rm } from "node:fs/promises";
import { bar, metric, found, type Findings } from "../benchmark.ts";
import { Agent } from "../ours/agent.ts";
import { ratioOfMedians } from "../statistic.ts";
import { BANDWIDTH_DEFAULT, type StockGuest } from "../stock/stock-guest.ts";
import { findCounter, longestGap } from "../ticker.ts";
import { settle, without, type Place } from "./bench-place.ts";
import { startBallast, startTicker } from "./load.ts";

const DEFAULT_SAVES = 3;

interface Ticking {
  readonly pid: number;
  readonly counter: number;
}

export interface PauseOptions {
  readonly name: string;
  readonly ballastBytes: number;
  readonly limit: number;
}

/** @param stock a guest with the same load, but for the ticker */
export async function comparePause(
  place: Place,
  { name, ballastBytes, limit }: PauseOptions,
  stock: StockGuest,
): Promise<Findings> {
  const { context, daemon, shape } = place;
  const agent = await Agent.create(daemon, shape);
  await startBallast(agent, ballastBytes);
  const ours = agent.ticker(await startTicker(agent));
  const theirs = await stockTicker(stock, shape.memoryBytes);
  const [undisturbed, gaps, byHost]: [number[], number[], number[]] = [[], [], []];
  const [saves, saveGaps, syncs]: [number[], number[], number[]] = [[], [], []];
  for (let i = 0; i < context.runs; i++) {
    await without(stock.pid, async () => {
      await settle();
      undisturbed.push(await longestGap(ours.pid, ours.counter, settle));
      const checkpoint = async () => void byHost.push(await agent.checkpoint());
      gaps.push(await longestGap(ours.pid, ours.counter, checkpoint));
    });
    await without(ours.pid, async () => {
      await settle();
      const saved = await timedSave(stock, theirs);
      saves.push(saved.ms);
      saveGaps.push(saved.gapMs);
      syncs.push(saved.syncMs);
    });
    context.progress(
      `${name} pause ${i + 1}/${context.runs}: ${gaps.at(-1)?.toFixed(1)} ms ` +
        `(host ${byHost.at(-1)?.toFixed(1)}), stock save ${saves.at(-1)?.toFixed(1)} ms`,
    );
  }
  const byDefault: number[] = [];
  await stock.limitBandwidth(BANDWIDTH_DEFAULT);
  for (let i = 0; i < DEFAULT_SAVES; i++) byDefault.push((await timedSave(stock, theirs)).ms);
  await agent.remove();
  const ratio = ratioOfMedians(gaps, saves);
  return found({
    metrics: {
      [`${name}_pause`]: metric("ms", gaps),
      [`${name}_pause_by_host`]: metric("ms", byHost),
      [`${name}_gap_undisturbed`]: metric("ms", undisturbed),
      [`${name}_stock_save`]: metric("ms", saves),
      [`${name}_stock_save_gap`]: metric("ms", saveGaps),
      [`${name}_stock_save_sync`]: metric("ms", syncs),
      [`${name}_stock_save_default_bandwidth`]: metric("ms", byDefault),
    },
    ratios: {
      [`${name}_pause_vs_stock_save`]: ratio,
      [`${name}_pause_vs_stock_save_default_bandwidth`]: ratioOfMedians(gaps, byDefault),
    },
    bars: [bar(`${name}_pause_vs_stock_save`, ratio, limit)],
  });
}

async function stockTicker(stock: StockGuest, memoryBytes: number): Promise<Ticking> {
  const counter = findCounter(stock.pid, memoryBytes, await startTicker(stock));
  if (counter === null) throw new Error("The stock guest's ticker is not found");
  return { pid: stock.pid, counter };
}

/** One save, and what it would cost to have it on the disk, which is not part of it. */
async function timedSave(
  stock: StockGuest,
  { pid, counter }: Ticking,
): Promise<{ ms: number; gapMs: number; syncMs: number }> {
  let saved = { ms: Number.NaN, statePath: "" };
  const gapMs = await longestGap(pid, counter, async () => {
    saved = await stock.save();
    await stock.go();
  });
  const file = await open(saved.statePath);
  const begin = performance.now();
  await file.sync();
  const syncMs = performance.now() - begin;
  await file.close();
  await rm(saved.statePath);
  return { ms: saved.ms, gapMs, syncMs };
}
