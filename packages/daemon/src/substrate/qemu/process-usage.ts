/** What a process takes of the host. */
import { readFile } from "node:fs/promises";
import { processError, readStat, TICKS_PER_SECOND, type ProcessIdentity } from "./process.ts";

export interface ProcessUsage {
  /** Its share of pages that are shared, and all of its own. */
  readonly pssBytes: number;
  readonly privateBytes: number;
  readonly cpuSeconds: number;
}

/** @throws `machine_failed` where the process is gone */
export async function processUsage(process: ProcessIdentity): Promise<ProcessUsage> {
  const { pid, startTicks } = process;
  try {
    const [rollup, stat] = await Promise.all([
      readFile(`/proc/${pid}/smaps_rollup`, "latin1"),
      readStat(pid),
    ]);
    if (stat?.startTicks !== startTicks) throw new Error("The VM process is gone");
    const kib = (name: string): number =>
      Number(new RegExp(`^${name}: +(\\d+) kB$`, "m").exec(rollup)?.[1] ?? 0);
    return {
      pssBytes: kib("Pss") * 1024,
      privateBytes: (kib("Private_Clean") + kib("Private_Dirty")) * 1024,
      cpuSeconds: stat.cpuTicks / TICKS_PER_SECOND,
    };
  } catch (error) {
    throw await processError(process, "tell what the VM process uses", error);
  }
}
