/**
 * Pause: how long a program inside stands still for a live checkpoint, against stock QEMU's save of the
 * same guest (from `stop` until the file is complete, not counting that it must go on again).
 */
import { rm } from "node:fs/promises";
import { bar, metric, type Findings } from "../benchmark.ts";
import { Agent } from "../ours/agent.ts";
import { ratioOfMedians } from "../statistic.ts";
import type { StockGuest } from "../stock/stock-guest.ts";
import { findCounter, longestGap } from "../ticker.ts";
import { settle, without, type Place } from "./bench-place.ts";
import { startBallast, startTicker } from "./load.ts";

/** @param stock a guest with the same load, but for the ticker */
export async function comparePause(
  place: Place,
  name: string,
  ballastBytes: number,
  stock: StockGuest,
  limit: number,
): Promise<Findings> {
  const { context, daemon, shape } = place;
  const agent = await Agent.create(daemon, shape);
  await startBallast(agent, ballastBytes);
  const ours = agent.ticker(await startTicker(agent));
  const mark = await startTicker(stock);
  const counter = findCounter(stock.pid, shape.memoryBytes, mark);
  if (counter === null) throw new Error("The stock guest's ticker is not found");
  const samples = { gap: [], host: [], undisturbed: [], save: [], saveGap: [] } as Record<
    "gap" | "host" | "undisturbed" | "save" | "saveGap",
    number[]
  >;
  for (let i = 0; i < context.runs; i++) {
    await without(stock.pid, async () => {
      await settle();
      samples.undisturbed.push(await longestGap(ours.pid, ours.counter, settle));
      let pauseMs = Number.NaN;
      const gap = await longestGap(ours.pid, ours.counter, async () => {
        pauseMs = await agent.checkpoint();
      });
      samples.gap.push(gap);
      samples.host.push(pauseMs);
    });
    await without(ours.pid, async () => {
      await settle();
      const gap = await longestGap(stock.pid, counter, async () => {
        const { ms, statePath } = await stock.save();
        samples.save.push(ms);
        await stock.go();
        await rm(statePath);
      });
      samples.saveGap.push(gap);
    });
    context.progress(
      `${name} pause ${i + 1}/${context.runs}: ${samples.gap.at(-1)?.toFixed(1)} ms (host ${samples.host.at(-1)?.toFixed(1)}), ` +
        `stock save ${samples.save.at(-1)?.toFixed(0)} ms`,
    );
  }
  await agent.remove();
  const ratio = ratioOfMedians(samples.gap, samples.save);
  return {
    metrics: {
      [`${name}_pause`]: metric("ms", samples.gap),
      [`${name}_pause_by_host`]: metric("ms", samples.host),
      [`${name}_gap_undisturbed`]: metric("ms", samples.undisturbed),
      [`${name}_stock_save`]: metric("ms", samples.save),
      [`${name}_stock_save_gap`]: metric("ms", samples.saveGap),
    },
    ratios: { [`${name}_pause_vs_stock_save`]: ratio },
    bars: [bar(`${name}_pause_vs_stock_save`, ratio, limit)],
    notes: [],
  };
}
