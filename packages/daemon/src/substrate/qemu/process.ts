/**
 * Host processes, told apart for certain: a pid is recycled, a pid with its start time is not.
 *
 * - I1 Nothing is signalled unless pid and start ticks both match at that moment.
 */
import { readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { PerdureError } from "@perdure/protocol";
import type { Clock } from "../../core/ports/clock.ts";
import { qemuLimits } from "./limit.ts";

/** One process, for as long as it lives and for ever after. */
export interface ProcessIdentity {
  readonly pid: number;
  /** Field 22 of /proc/PID/stat. */
  readonly startTicks: number;
}

export interface ProcessStat {
  readonly state: string;
  readonly startTicks: number;
  readonly threads: number;
  /** User and system time in clock ticks. */
  readonly cpuTicks: number;
}

/** USER_HZ: fixed at 100 by the kernel's interface to user space. */
export const TICKS_PER_SECOND = 100;

/** Parses /proc/PID/stat; the program's name may hold spaces and parentheses. */
export function parseStat(text: string): ProcessStat {
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  return {
    state: fields[0] ?? "",
    cpuTicks: Number(fields[11]) + Number(fields[12]),
    threads: Number(fields[17]),
    startTicks: Number(fields[19]),
  };
}

/** The first thread may have ended while others still hold memory, files and locks. */
function unlessGone(stat: ProcessStat): ProcessStat | null {
  return (stat.state === "Z" || stat.state === "X") && stat.threads <= 1 ? null : stat;
}

/** Null where there is no such process, or only its exit status is left. */
export async function readStat(pid: number): Promise<ProcessStat | null> {
  try {
    return unlessGone(parseStat(await readFile(`/proc/${pid}/stat`, "latin1")));
  } catch {
    return null;
  }
}

/** As `readStat`, at once: for workers, and for the moment before a signal is sent. */
export function readStatNow(pid: number): ProcessStat | null {
  try {
    return unlessGone(parseStat(readFileSync(`/proc/${pid}/stat`, "latin1")));
  } catch {
    return null;
  }
}

export async function isAlive(identity: ProcessIdentity): Promise<boolean> {
  return (await readStat(identity.pid))?.startTicks === identity.startTicks;
}

/** The identity of a process that was just started. @throws `machine_start_failed` if it is gone */
export async function identify(pid: number): Promise<ProcessIdentity> {
  const stat = await readStat(pid);
  if (stat === null) {
    throw new PerdureError("machine_start_failed", `Process ${pid} ended while it was starting`);
  }
  return { pid, startTicks: stat.startTicks };
}

/** Sends SIGKILL to that very process and waits until it is gone. Idempotent. @throws `machine_failed` */
export async function killAndWait(identity: ProcessIdentity, clock: Clock): Promise<void> {
  if (readStatNow(identity.pid)?.startTicks === identity.startTicks) {
    try {
      process.kill(identity.pid, "SIGKILL");
    } catch (error) {
      // Gone in between.
      if ((error as NodeJS.ErrnoException).code !== "ESRCH") {
        throw await processError(identity, "end the VM process", error);
      }
    }
  }
  const end = clock.monotonicMs() + qemuLimits.killMs;
  for (let pauseMs = 1; await isAlive(identity); pauseMs = Math.min(pauseMs * 2, 50)) {
    if (clock.monotonicMs() > end) {
      throw new PerdureError(
        "machine_failed",
        `Process ${identity.pid} is still there ${qemuLimits.killMs} ms after SIGKILL`,
        { hint: "It hangs in the host's kernel, most likely on a disk." },
      );
    }
    await clock.wait(pauseMs);
  }
}

/** What it means that the system refused something of a process: it has ended, or what was said. */
export async function processError(
  identity: ProcessIdentity,
  action: string,
  error: unknown,
): Promise<PerdureError> {
  if (error instanceof PerdureError) return error;
  const said = error instanceof Error ? error.message : String(error);
  const why = (await isAlive(identity)) ? said : "it has ended";
  return new PerdureError("machine_failed", `Cannot ${action}: ${why}`, { cause: error });
}

/** Arguments of a process, or null where it is gone or a kernel thread. */
export async function readArguments(pid: number): Promise<string[] | null> {
  try {
    const text = await readFile(`/proc/${pid}/cmdline`, "utf8");
    return text === "" ? null : text.replace(/\0$/, "").split("\0");
  } catch {
    return null;
  }
}

let bootId: string | undefined;

/** Changes at every boot of the host: pids of another boot mean nothing. */
export function hostBootId(): string {
  bootId ??= readFileSync("/proc/sys/kernel/random/boot_id", "latin1").trim();
  return bootId;
}
