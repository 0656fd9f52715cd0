/**
 * Cold: the wake of an agent whose files have left the host's page cache meanwhile, as after a long
 * sleep, against stock QEMU's restore from a state file that has left it, too. Printed, not barred: it
 * measures the disk as much as either side. Images, templates and the base stay cached, as they do on a
 * host where other agents use them.
 */
import { execFile } from "node:child_process";
import { readdir } from "node:fs/promises";
import path from "node:path";
import { promisify } from "node:util";
import { metric, found, type Findings } from "../benchmark.ts";
import { Agent } from "../ours/agent.ts";
import { ratioOfMedians } from "../statistic.ts";
import { StockGuest, type SavedGuest } from "../stock/stock-guest.ts";
import { settle, type Place } from "./bench-place.ts";

const SAMPLES_MAX = 5;

export async function compareCold(place: Place, saved: SavedGuest): Promise<Findings> {
  const { context, daemon, shape, stock } = place;
  const agent = await Agent.create(daemon, shape);
  const [ours, theirs]: [number[], number[]] = [[], []];
  const runs = Math.min(context.runs, SAMPLES_MAX);
  for (let i = 0; i < runs; i++) {
    await settle();
    await agent.sleep();
    const restored = await StockGuest.restore(stock, saved, async () => {
      await dropFromCache([saved.statePath]);
      await daemon.quiet(1);
    });
    theirs.push(restored.readyMs);
    await dropFromCache(await filesBelow(agent.folder));
    await daemon.quiet(1);
    ours.push((await agent.wake()).clientMs);
    context.progress(
      `cold ready ${i + 1}/${runs}: ${ours.at(-1)?.toFixed(0)} ms, stock ${restored.readyMs.toFixed(0)} ms`,
    );
  }
  await agent.remove();
  return found({
    metrics: { cold_ready: metric("ms", ours), cold_stock_restore: metric("ms", theirs) },
    ratios: { cold_ready_vs_stock_restore: ratioOfMedians(ours, theirs) },
  });
}

async function filesBelow(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile())
    .map((entry) => path.join(entry.parentPath, entry.name));
}

/** Writes out what is dirty, then asks the kernel to forget the files' pages (as coreutils do it). */
async function dropFromCache(files: readonly string[]): Promise<void> {
  const run = promisify(execFile);
  await run("sync", [...files]);
  for (const file of files) {
    await run("dd", [`if=${file}`, "iflag=nocache", "count=0", "status=none"]);
  }
}
