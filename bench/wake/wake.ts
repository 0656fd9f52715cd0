/**
 * `wake`: a sleeping agent against stock QEMU saving and restoring the same guest, and what sleeping
 * agents cost. Each part brings its own agents and stock guests and leaves none.
 */
import { bar, joined, type Benchmark, type Context, type Findings } from "../benchmark.ts";
import { StockGuest } from "../stock/stock-guest.ts";
import { memoryBytes, openPlace, settle, type Place } from "./bench-place.ts";
import { measureFirstExec } from "./first-exec.ts";
import { startBallast } from "./load.ts";
import { measureLoop } from "./loop.ts";
import { comparePause } from "./pause.ts";
import { compareCold } from "./cold.ts";
import { compareReady } from "./ready.ts";
import { compareStored } from "./stored.ts";
import { measureWorked } from "./worked.ts";

const MIB = 1024 * 1024;

const parts: Readonly<Record<string, (place: Place) => Promise<Findings>>> = {
  idle: async (place) => {
    const { stock, saved } = await loadedStock(place, 0);
    const pause = await comparePause(place, "idle", 0, stock, 0.15);
    await stock.end();
    return joined([
      pause,
      await compareStored(place, saved.bytes),
      await withOverheadBar(
        compareReady(place, { name: "idle", ballastBytes: 0, spares: 1, limit: 0.25 }, saved),
      ),
    ]);
  },
  dirty64: async (place) => {
    const ballastBytes = 64 * MIB;
    const { stock, saved } = await loadedStock(place, ballastBytes);
    const pause = await comparePause(place, "dirty64", ballastBytes, stock, 0.4);
    await stock.end();
    const options = { name: "dirty64", ballastBytes, spares: 1, limit: 0.35 } as const;
    return joined([pause, await compareReady(place, options, saved)]);
  },
  half: async (place) => {
    const ballastBytes = memoryBytes / 2;
    const { stock, saved } = await loadedStock(place, ballastBytes);
    await stock.end();
    const options = { name: "half", ballastBytes, spares: 0, limit: 0.4 } as const;
    return compareReady(place, options, saved);
  },
  cold: async (place) => {
    const { stock, saved } = await loadedStock(place, 0);
    await stock.end();
    return compareCold(place, saved);
  },
  worked: measureWorked,
  "first-exec": measureFirstExec,
  loop: measureLoop,
};

export const wake: Benchmark = {
  name: "wake",
  about: `sleep and wake against stock QEMU's save and restore (${Object.keys(parts).join(", ")})`,
  async run(context: Context): Promise<Findings> {
    const names = context.only ?? Object.keys(parts);
    const wanted = names.map((name) => {
      const part = parts[name];
      if (part === undefined) throw new Error(`There is no part "${name}" in this benchmark`);
      return { name, part };
    });
    const place = await openPlace(context);
    const findings: Findings[] = [];
    for (const { name, part } of wanted) {
      context.progress(`part "${name}"`);
      findings.push(await part(place));
    }
    return joined(findings);
  },
};

/** A stock guest with this load, and its state and disk as they were before any ticker ran. */
async function loadedStock(place: Place, ballastBytes: number) {
  place.context.progress("booting the stock guest");
  const stock = await StockGuest.boot(place.stock);
  await startBallast(stock, ballastBytes);
  await settle();
  return { stock, saved: await stock.keep() };
}

/** The cost of a woken idle agent is measured on the way. */
async function withOverheadBar(ready: Promise<Findings>): Promise<Findings> {
  const findings = await ready;
  const overhead = findings.metrics["idle_overhead"];
  const value = overhead?.median ?? Number.NaN;
  return { ...findings, bars: [...findings.bars, bar("awake_idle_overhead_mib", value, 70)] };
}
