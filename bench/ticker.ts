/**
 * A ticker inside a VM, watched from outside: the gap that it shows is the pause as a program inside
 * lives through it.
 *
 * The program counts up in a page of its own, about once a millisecond. No clock inside can tell how
 * long the VM stood still, because they all stand still with it; so the host reads the counter straight
 * from the VM process's memory and takes the times at which it moved, by its own clock. Nothing that is
 * judged (link, daemon, API) lies between.
 */
import { closeSync, openSync, readSync } from "node:fs";
import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { guestMemory, pageBytes } from "./proc.ts";

const MAGIC_BYTES = 32;
const SETTLE_MS = 15;

/** The mark that names one ticker's page. */
export function newMark(): Buffer {
  return randomBytes(MAGIC_BYTES);
}

/** The program: the mark is given inverted, so that only the page itself holds it. */
export function tickerArgv(mark: Buffer): string[] {
  const inverted = Buffer.from(mark.map((byte) => byte ^ 0xff)).toString("hex");
  return ["python3", "-c", program, inverted];
}

const program = `
import mmap, struct, sys, time
page = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
page[0:32] = bytes(byte ^ 255 for byte in bytes.fromhex(sys.argv[1]))
print("ticking", flush=True)
count = 0
while True:
    count += 1
    struct.pack_into("<Q", page, 32, count)
    time.sleep(0.001)
`;

/** Where the counter lies in the memory of a VM process, or null where it is not in this one. */
export function findCounter(pid: number, memoryBytes: number, mark: Buffer): number | null {
  const area = guestMemory(pid, memoryBytes);
  const memory = openSync(`/proc/${pid}/mem`, "r");
  try {
    const head = Buffer.alloc(MAGIC_BYTES);
    for (const page of ownPages(pid, area.address, memoryBytes)) {
      const address = area.address + page * pageBytes;
      readSync(memory, head, 0, MAGIC_BYTES, address);
      if (head.equals(mark)) return address + MAGIC_BYTES;
    }
    return null;
  } finally {
    closeSync(memory);
  }
}

/** Pages that the process has in memory or swap for itself, not shared with a file. */
function ownPages(pid: number, address: number, bytes: number): number[] {
  const entries = Buffer.alloc((bytes / pageBytes) * 8);
  const pagemap = openSync(`/proc/${pid}/pagemap`, "r");
  try {
    const at = (address / pageBytes) * 8;
    for (let done = 0; done < entries.length;) {
      const read = readSync(pagemap, entries, done, entries.length - done, at + done);
      if (read === 0) throw new Error(`Process ${pid} shows no page map`);
      done += read;
    }
  } finally {
    closeSync(pagemap);
  }
  const pages: number[] = [];
  for (let page = 0; page < bytes / pageBytes; page++) {
    const flags = entries.readUInt8(page * 8 + 7);
    const [present, swapped, file] = [flags & 0x80, flags & 0x40, flags & 0x20];
    if ((present !== 0 || swapped !== 0) && file === 0) pages.push(page);
  }
  return pages;
}

/** The longest time in ms that the counter stood still around `work`. */
export async function longestGap(
  pid: number,
  counter: number,
  work: () => Promise<void>,
): Promise<number> {
  const watch = watchCounter(pid, counter);
  try {
    await sleep(SETTLE_MS);
    await work();
    await watch.moved();
    await sleep(SETTLE_MS);
  } finally {
    watch.stop();
  }
  return largestStep(watch.movedAtMs);
}

/** The largest difference between neighbours. */
export function largestStep(times: readonly number[]): number {
  if (times.length < 2) throw new Error("The ticker inside does not tick");
  return times.reduce((largest, time, i) => Math.max(largest, time - (times[i - 1] ?? time)), 0);
}

function watchCounter(pid: number, counter: number) {
  const memory = openSync(`/proc/${pid}/mem`, "r");
  const word = Buffer.alloc(8);
  const movedAtMs: number[] = [];
  let last: bigint | null = null;
  let open = true;
  const read = (): void => {
    readSync(memory, word, 0, 8, counter);
    const value = word.readBigUInt64LE();
    if (value === last) return;
    last = value;
    movedAtMs.push(performance.now());
  };
  const timer = setInterval(() => open && read(), 1);
  return {
    movedAtMs,
    /** Resolves once the counter has moved on from now. */
    async moved(): Promise<void> {
      const before = movedAtMs.length;
      const end = performance.now() + 10_000;
      while (movedAtMs.length === before) {
        if (performance.now() > end) throw new Error("The ticker inside ticks no more");
        await sleep(1);
      }
    },
    stop(): void {
      open = false;
      clearInterval(timer);
      closeSync(memory);
    },
  };
}
