/**
 * `wake`: a sleeping agent against stock QEMU saving and restoring the same guest, and what sleeping
 * agents cost. Each part brings its own agents and stock guests and leaves none.
 */
import { bar, found, joined, type Benchmark, type Context, type Findings } from "../benchmark.ts";
import { chosen, runParts, type Parts } from "../part.ts";
import { StockGuest, type SavedGuest } from "../stock/stock-guest.ts";
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

const parts: Parts<Place> = {
  "idle-pause": async (place) => {
    const { stock } = await loadedStock(place, 0);
    return comparePause(place, { name: "idle", ballastBytes: 0, limit: 0.15 }, stock);
  },
  idle: async (place) => {
    const saved = await savedStock(place, 0);
    const options = { name: "idle", ballastBytes: 0, spares: 1, limit: 0.25 } as const;
    const ready = await compareReady(place, options, saved);
    const overhead = ready.metrics["idle_overhead"]?.median ?? Number.NaN;
    const bars = [bar("awake_idle_overhead_mib", overhead, 70)];
    return joined([await compareStored(place, saved.bytes), ready, found({ bars })]);
  },
  "dirty64-pause": async (place) => {
    const { stock } = await loadedStock(place, 64 * MIB);
    return comparePause(place, { name: "dirty64", ballastBytes: 64 * MIB, limit: 0.4 }, stock);
  },
  dirty64: async (place) => {
    const saved = await savedStock(place, 64 * MIB);
    const options = { name: "dirty64", ballastBytes: 64 * MIB, spares: 1, limit: 0.35 } as const;
    return compareReady(place, options, saved);
  },
  half: async (place) => {
    const ballastBytes = memoryBytes / 2;
    const saved = await savedStock(place, ballastBytes);
    return compareReady(place, { name: "half", ballastBytes, spares: 0, limit: 0.4 }, saved);
  },
  cold: async (place) => compareCold(place, await savedStock(place, 0)),
  worked: measureWorked,
  "first-exec": measureFirstExec,
  loop: measureLoop,
};

export const wake: Benchmark = {
  name: "wake",
  about: `sleep and wake against stock QEMU's save and restore (${Object.keys(parts).join(", ")})`,
  async run(context: Context): Promise<Findings> {
    const wanted = chosen(parts, context.only);
    const place = await openPlace(context);
    return runParts(context, wanted, {
      place: (cleanup) => ({ ...place, stock: { ...place.stock, cleanup } }),
      failed: () => place.daemon.removeAgents(),
    });
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

/** As `loadedStock`, where the guest itself is needed no more. */
async function savedStock(place: Place, ballastBytes: number): Promise<SavedGuest> {
  const { stock, saved } = await loadedStock(place, ballastBytes);
  await stock.end();
  return saved;
}
