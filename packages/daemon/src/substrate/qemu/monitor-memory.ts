/**
 * Reads a guest's memory by asking QEMU for it, where the kernel does not let the daemon look itself: a
 * daemon that is not root and was restarted is no ancestor of its VM processes any more, and Yama then
 * denies /proc/PID/mem. Slower, and never a failed sleep.
 *
 * - I1 QEMU answers by guest-physical address. What the guest itself cannot reach (RAM behind the old
 *   display window) reads as the bus answers; it holds nothing that a guest could miss.
 * - I2 QEMU writes files; they are read as files of a hostile process.
 */
import { open } from "node:fs/promises";
import { PAGE_BYTES, PerdureError } from "@perdure/protocol";
import type { PageBatch } from "../../core/ports/page.ts";
import { PAGES_PER_BATCH } from "./guest-memory.ts";
import { processError, type ProcessIdentity } from "./process.ts";
import type { QmpClient } from "./qmp.ts";
import type { RunFolder } from "./run-folder.ts";

const GIB = 1024 ** 3;
/** From this size on the machine puts all beyond 3 GiB above 4 GiB. */
const SPLIT_FROM_BYTES = 3.5 * GIB;
const LOW_BYTES = 3 * GIB;
const HIGH_ADDRESS = 4 * GIB;
/** Pages in between that are read along rather than asked for apart. */
const GAP_PAGES = 16;

/** Guest-physical address of an offset in the base, for the machine type that we use. */
export function guestAddress(offset: number, memoryBytes: number): number {
  const split = memoryBytes >= SPLIT_FROM_BYTES;
  return split && offset >= LOW_BYTES ? offset - LOW_BYTES + HIGH_ADDRESS : offset;
}

/** Whether the kernel lets this daemon open the memory of the process. */
export async function mayReadMemory(process: ProcessIdentity): Promise<boolean> {
  try {
    await (await open(`/proc/${process.pid}/mem`, "r")).close();
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "EACCES" || code === "EPERM") return false;
    throw await processError(process, "look into the VM process", error);
  }
}

/** Every page of the memory: what must be read where private pages cannot be told. */
export function everyPage(memoryBytes: number): Uint32Array<ArrayBuffer> {
  return Uint32Array.from({ length: memoryBytes / PAGE_BYTES }, (_, index) => index);
}

export async function* readThroughMonitor(
  qmp: QmpClient,
  folder: RunFolder,
  memoryBytes: number,
  indexes: Uint32Array<ArrayBuffer>,
): AsyncGenerator<PageBatch> {
  for (let at = 0; at < indexes.length; at += PAGES_PER_BATCH) {
    const part = indexes.slice(at, at + PAGES_PER_BATCH);
    const bytes = new Uint8Array(part.length * PAGE_BYTES);
    for (const { first, count } of spans(part, memoryBytes)) {
      const start = part[first] ?? 0;
      const size = ((part[first + count - 1] ?? 0) - start + 1) * PAGE_BYTES;
      const filename = folder.memoryPath;
      const val = guestAddress(start * PAGE_BYTES, memoryBytes);
      await qmp.execute("pmemsave", { val, size, filename });
      const span = await folder.takeFile(filename, size);
      if (span.length !== size) {
        throw new PerdureError("machine_failed", "QEMU saved less memory than was asked for");
      }
      for (let page = first; page < first + count; page++) {
        const from = ((part[page] ?? 0) - start) * PAGE_BYTES;
        bytes.set(span.subarray(from, from + PAGE_BYTES), page * PAGE_BYTES);
      }
    }
    yield { indexes: part, bytes };
  }
}

/** Pages that are near enough to be saved at once; none crosses the hole below 4 GiB. */
export function spans(
  indexes: Uint32Array,
  memoryBytes: number,
): { readonly first: number; readonly count: number }[] {
  const found: { first: number; count: number }[] = [];
  let last: { first: number; count: number } | null = null;
  indexes.forEach((index, at) => {
    const before = indexes[at - 1] ?? 0;
    const near = index - before <= GAP_PAGES;
    const whole =
      guestAddress(index * PAGE_BYTES, memoryBytes) -
        guestAddress(before * PAGE_BYTES, memoryBytes) ===
      (index - before) * PAGE_BYTES;
    const start = indexes[last?.first ?? 0] ?? 0;
    if (last !== null && near && whole && index - start < PAGES_PER_BATCH) last.count++;
    else found.push((last = { first: at, count: 1 }));
  });
  return found;
}
