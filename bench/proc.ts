/**
 * What the kernel says about a process: its start, its arguments, its memory areas. Read from /proc
 * directly, so that figures do not depend on the code that they judge.
 */
import { readdirSync, readFileSync } from "node:fs";

export const pageBytes = 4096;

export interface MemoryArea {
  readonly address: number;
  readonly bytes: number;
  /** Proportional share of what is in memory. */
  readonly pssBytes: number;
  /** Pages of the process's own: written, or never in a file. */
  readonly anonymousBytes: number;
}

/** Clock ticks after boot at which the process started: with the pid, what names it for good. */
export function startTicks(pid: number): number | null {
  const fields = statFields(pid);
  return fields === null ? null : Number(fields[19]);
}

/** CPU time that the process has used, in clock ticks of 10 ms. */
export function cpuTicks(pid: number): number {
  const fields = statFields(pid);
  return fields === null ? 0 : Number(fields[11]) + Number(fields[12]);
}

/** Every process that `pid` started, and all that those started. */
export function descendants(pid: number): number[] {
  const children = new Map<number, number[]>();
  for (const each of processes()) {
    const parent = Number(statFields(each)?.[1] ?? 0);
    children.set(parent, [...(children.get(parent) ?? []), each]);
  }
  const found = [...(children.get(pid) ?? [])];
  // The list grows while it is walked.
  for (const next of found) found.push(...(children.get(next) ?? []));
  return found;
}

/** What a process has in memory, in bytes: in all, and the part that is its own and in no file. */
export function residentBytes(pid: number): { whole: number; anonymous: number } {
  const text = readFileSync(`/proc/${pid}/status`, "latin1");
  return { whole: kibibytes(text, "VmRSS"), anonymous: kibibytes(text, "RssAnon") };
}

function statFields(pid: number): string[] | null {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "latin1");
    // The name, in parentheses, may hold anything.
    return text.slice(text.lastIndexOf(")") + 2).split(" ");
  } catch {
    return null;
  }
}

/** Ends exactly this process, not one that got its pid later. */
export function killExactly(pid: number, start: number | null): void {
  if (start === null || startTicks(pid) !== start) return;
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // It ended meanwhile.
  }
}

/** Processes whose command line holds an argument that `matches`. */
export function findProcesses(matches: (argument: string) => boolean): number[] {
  return processes().filter((pid) => pid !== process.pid && commandLine(pid).some(matches));
}

function processes(): number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number);
}

export function commandLine(pid: number): string[] {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0").slice(0, -1);
  } catch {
    return [];
  }
}

/** Every area of the process's memory. */
export function memoryAreas(pid: number): MemoryArea[] {
  return parseSmaps(readFileSync(`/proc/${pid}/smaps`, "latin1"));
}

export function parseSmaps(text: string): MemoryArea[] {
  const areas: MemoryArea[] = [];
  for (const block of text.split(/^(?=[0-9a-f]+-[0-9a-f]+ )/m)) {
    const range = /^([0-9a-f]+)-([0-9a-f]+) /.exec(block);
    if (range?.[1] === undefined || range[2] === undefined) continue;
    const address = Number.parseInt(range[1], 16);
    areas.push({
      address,
      bytes: Number.parseInt(range[2], 16) - address,
      pssBytes: kibibytes(block, "Pss"),
      anonymousBytes: kibibytes(block, "Anonymous"),
    });
  }
  return areas;
}

function kibibytes(block: string, field: string): number {
  return Number(new RegExp(`^${field}:\\s+(\\d+) kB`, "m").exec(block)?.[1] ?? 0) * 1024;
}

/** The area that is as large as the guest's memory. */
export function guestMemory(pid: number, memoryBytes: number): MemoryArea {
  const found = memoryAreas(pid).filter(({ bytes }) => bytes === memoryBytes);
  const [area] = found;
  if (area === undefined || found.length > 1) {
    throw new Error(`Process ${pid} has ${found.length} areas of ${memoryBytes} bytes`);
  }
  return area;
}

export interface Overhead {
  /** Proportional memory of the whole process beyond the pages that its guest has changed. */
  readonly wholeBytes: number;
  /** Its share of the guest's memory that is still as in the file below it. */
  readonly baseBytes: number;
}

export function overheadOf(pid: number, memoryBytes: number): Overhead {
  const whole = memoryAreas(pid).reduce((sum, { pssBytes }) => sum + pssBytes, 0);
  const { pssBytes, anonymousBytes } = guestMemory(pid, memoryBytes);
  return { wholeBytes: whole - anonymousBytes, baseBytes: pssBytes - anonymousBytes };
}
