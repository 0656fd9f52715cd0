/**
 * Worker thread: scans, reads and writes the memory of a VM process through /proc, so that the main
 * loop never waits for it.
 *
 * - I1 The start ticks are compared after /proc/PID/mem was opened: from then on the descriptor
 *   belongs to that process's memory, whatever happens to its pid.
 * - I2 A page whose content cannot be told from the base's is reported as private. Swapped pages count.
 */
import { closeSync, openSync, readSync, writeSync } from "node:fs";
import { PAGE_BYTES } from "@perdure/protocol";
import { move } from "piscina";
import { PAGE_BATCH_BYTES_MAX } from "../../core/ports/page.ts";
import { pageRuns, type MemoryArea } from "./page-run.ts";
import { readStatNow, type ProcessIdentity } from "./process.ts";

export interface MemoryTask {
  readonly process: ProcessIdentity;
  readonly areas: readonly MemoryArea[];
}

/** Bits of a pagemap entry, in its upper half (Documentation/admin-guide/mm/pagemap.rst). */
const PRESENT = 1 << 31;
const SWAPPED = 1 << 30;
const FILE_OR_SHARED = 1 << 29;

const ENTRY_BYTES = 8;
/** Entries of 512 MiB at once; prepared once per thread. */
const entries = new Uint32Array((1024 * 1024) / 4);

/** Indexes of private pages, ascending. */
export function scan(task: MemoryTask): unknown {
  const fd = openOf(task.process, "pagemap", "r");
  try {
    let found = new Uint32Array(4096);
    let count = 0;
    for (const area of task.areas) {
      const pages = area.bytes / PAGE_BYTES;
      const firstIndex = area.offset / PAGE_BYTES;
      const firstEntry = (area.address / PAGE_BYTES) * ENTRY_BYTES;
      for (let page = 0; page < pages;) {
        const wanted = Math.min(pages - page, entries.byteLength / ENTRY_BYTES);
        readFully(fd, entries, 0, wanted * ENTRY_BYTES, firstEntry + page * ENTRY_BYTES);
        if (count + wanted > found.length) found = grown(found, count + wanted);
        for (let i = 0; i < wanted; i++) {
          const upper = entries[i * 2 + 1] ?? 0;
          if ((upper & (PRESENT | SWAPPED)) !== 0 && (upper & FILE_OR_SHARED) === 0) {
            found[count++] = firstIndex + page + i;
          }
        }
        page += wanted;
      }
    }
    return move(found.slice(0, count));
  } finally {
    closeSync(fd);
  }
}

/** A buffer whose pages are all there. */
export function makeBuffer(): unknown {
  return move(new Uint8Array(PAGE_BATCH_BYTES_MAX).fill(1).buffer);
}

/** Contents of pages, in the order of `indexes`, in the buffer `into`. */
export function read(
  task: MemoryTask & {
    readonly indexes: Uint32Array<ArrayBuffer>;
    readonly into: ArrayBuffer;
  },
): unknown {
  const fd = openOf(task.process, "mem", "r");
  try {
    const bytes = new Uint8Array(task.into, 0, task.indexes.length * PAGE_BYTES);
    for (const run of pageRuns(task.indexes, task.areas)) {
      readFully(fd, bytes, run.first * PAGE_BYTES, run.pages * PAGE_BYTES, run.address);
    }
    return move(bytes);
  } finally {
    closeSync(fd);
  }
}

/** Writes pages over what is there. Hands the buffer of `bytes` back. */
export function write(
  task: MemoryTask & { readonly indexes: Uint32Array; readonly bytes: Uint8Array<ArrayBuffer> },
): unknown {
  if (task.bytes.length !== task.indexes.length * PAGE_BYTES) {
    throw new RangeError("A batch must hold one page of bytes per index");
  }
  const fd = openOf(task.process, "mem", "r+");
  try {
    for (const run of pageRuns(task.indexes, task.areas)) {
      const end = run.pages * PAGE_BYTES;
      for (let done = 0; done < end;) {
        const from = run.first * PAGE_BYTES + done;
        const put = writeSync(fd, task.bytes, from, end - done, run.address + done);
        if (put === 0) throw ended();
        done += put;
      }
    }
    return move(task.bytes.buffer);
  } finally {
    closeSync(fd);
  }
}

function openOf(process: ProcessIdentity, file: "mem" | "pagemap", flags: "r" | "r+"): number {
  const fd = openSync(`/proc/${process.pid}/${file}`, flags);
  if (readStatNow(process.pid)?.startTicks !== process.startTicks) {
    closeSync(fd);
    throw new Error(`Process ${process.pid} is no longer the VM process`);
  }
  return fd;
}

function readFully(
  fd: number,
  into: NodeJS.ArrayBufferView,
  offset: number,
  bytes: number,
  position: number,
): void {
  for (let done = 0; done < bytes;) {
    const got = readSync(fd, into, offset + done, bytes - done, position + done);
    if (got === 0) throw ended();
    done += got;
  }
}

/** The kernel moves no bytes, and calls it no error, once a process that was opened gave up its memory. */
function ended(): Error {
  return new Error("The VM process's memory ended before it should");
}

function grown(old: Uint32Array<ArrayBuffer>, atLeast: number): Uint32Array<ArrayBuffer> {
  const next = new Uint32Array(Math.max(atLeast, old.length * 2));
  next.set(old);
  return next;
}
