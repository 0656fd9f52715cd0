/**
 * Finds this home's VM processes among all of the host's.
 *
 * - I1 A process is one of ours only if it is QEMU, has exactly our name token after `-name`, and runs
 *   under a uid that we give out. A program that merely mentions the token is not.
 * - I2 Each is identified by pid and start time, so that what is killed later is what was found.
 */
import { readdir, readlink, stat } from "node:fs/promises";
import { basename } from "node:path";
import { machineIdSchema, type MachineId } from "@perdure/protocol";
import type { UidRange } from "./isolation.ts";
import { readArguments, readStat, type ProcessIdentity } from "./process.ts";

export interface FoundProcess {
  readonly id: MachineId;
  readonly identity: ProcessIdentity;
}

export async function findProcesses(
  homeId: string,
  range: UidRange | null,
): Promise<FoundProcess[]> {
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name)).map(Number);
  const found = await Promise.all(pids.map((pid) => recognise(pid, homeId, range)));
  return found.filter((one) => one !== null);
}

/** The machine that this process is, or null where it is none of this home's. */
export async function recognise(
  pid: number,
  homeId: string,
  range: UidRange | null,
): Promise<FoundProcess | null> {
  const before = await readStat(pid);
  const id = machineOf(await readArguments(pid), homeId);
  if (before === null || id === null) return null;
  try {
    const program = basename(await readlink(`/proc/${pid}/exe`)).replace(/ \(deleted\)$/, "");
    if (!program.startsWith("qemu-system-")) return null;
    const { uid } = await stat(`/proc/${pid}`);
    const ours =
      uid === process.getuid?.() ||
      (range !== null && uid >= range.first && uid < range.first + range.count);
    if (!ours) return null;
  } catch {
    return null;
  }
  const after = await readStat(pid);
  if (after?.startTicks !== before.startTicks) return null;
  return { id, identity: { pid, startTicks: before.startTicks } };
}

/** The machine id in `-name perdure-HOME-ID`, exactly. */
export function machineOf(args: readonly string[] | null, homeId: string): MachineId | null {
  const name = args?.[args.indexOf("-name") + 1 || args.length + 1];
  const prefix = `perdure-${homeId}-`;
  if (name?.startsWith(prefix) !== true) return null;
  const parsed = machineIdSchema.safeParse(name.slice(prefix.length));
  return parsed.success ? parsed.data : null;
}
