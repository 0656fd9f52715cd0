/**
 * Stored: all that an idle agent has on the disk once it sleeps, against stock QEMU's state file. Each
 * sample is an agent of its own, from before it was created until it slept: its layer, key and rows
 * in the state store count, too.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { bar, metric, found, type Findings } from "../benchmark.ts";
import { diskUsage } from "../disk-usage.ts";
import { Agent } from "../ours/agent.ts";
import { median } from "../statistic.ts";
import type { Place } from "./bench-place.ts";

const IDLE_MS = 3_000;
export const IDLE_STORED_BYTES = 1_572_864;

export async function compareStored(
  { context, daemon, shape }: Place,
  stockBytes: number,
): Promise<Findings> {
  // What runs is not stored: sockets, logs, and the state store's journal before it is folded in.
  const usage = (): Promise<number> => diskUsage(daemon.home, { without: ["run", "daemon.out"] });
  const whole: number[] = [];
  const bySleep: number[] = [];
  for (let i = 0; i < context.runs; i++) {
    await daemon.quiet(1);
    const before = await usage();
    const agent = await Agent.create(daemon, shape);
    await sleep(IDLE_MS);
    await daemon.quiet(2);
    const created = await usage();
    await agent.sleep();
    await daemon.quiet(1);
    const asleep = await usage();
    whole.push(asleep - before);
    bySleep.push(asleep - created);
    context.progress(`idle stored ${i + 1}/${context.runs}: ${asleep - before} bytes`);
    await agent.remove();
  }
  const bytes = median(whole);
  return found({
    metrics: {
      idle_stored: metric("bytes", whole),
      idle_stored_by_sleep_alone: metric("bytes", bySleep),
      idle_stock_file: metric("bytes", [stockBytes]),
    },
    ratios: { idle_stored_vs_stock_file: bytes / stockBytes },
    bars: [
      bar("idle_stored_vs_stock_file", bytes / stockBytes, 0.02),
      bar("idle_stored_bytes", bytes, IDLE_STORED_BYTES),
    ],
  });
}
