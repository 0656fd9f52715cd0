/** Material for tests of checkpoint stores: drafts, captures, and a memory kept as a plain array. */
import { randomBytes } from "node:crypto";
import { readFile } from "node:fs/promises";
import { makeId, type AgentId, type Digest, type LayerId } from "@perdure/protocol";
import type {
  CheckpointDraft,
  OpenedCheckpoint,
} from "../../packages/daemon/src/core/ports/checkpoint-store.ts";
import type { PageBatch } from "../../packages/daemon/src/core/ports/page.ts";
import type { MemoryBase } from "../../packages/daemon/src/core/ports/substrate.ts";

export const PAGE = 4096;
/** The smallest VM. */
export const MEMORY_BYTES = 128 * 1024 * 1024;
export const PAGES = MEMORY_BYTES / PAGE;
export const DISK_BYTES = 2 * 1024 * 1024 * 1024;

export const newAgentId = (): AgentId => makeId("ag", Date.now(), randomBytes(10));
export const newLayerId = (): LayerId => makeId("dl", Date.now(), randomBytes(10));
const digest = (digit: string): Digest => digit.repeat(64) as Digest;

export function sampleDraft(
  agent: AgentId,
  overrides: Partial<Omit<CheckpointDraft, "disk">> & { layers?: readonly LayerId[] } = {},
): CheckpointDraft {
  const { layers = [], ...others } = overrides;
  return {
    checkpoint: makeId("cp", Date.now(), randomBytes(10)),
    agent,
    tenant: "default",
    generation: 3,
    kind: "sleep",
    parent: null,
    createdAtMs: 1_764_000_000_000,
    frozen: true,
    substrate: {
      vmm: "fake",
      vmmVersion: "1",
      machineType: "pc-i440fx-7.2",
      deviceDigest: digest("d"),
      shape: { memoryBytes: MEMORY_BYTES, cpus: 1, diskBytes: DISK_BYTES },
      cpuModel: "qemu64",
      accelerator: "none",
      tscKhz: 0,
      kernel: digest("a"),
      initramfs: digest("b"),
      guestProtocol: 1,
    },
    disk: { image: { digest: digest("e"), bytes: 4096 }, layers, cleanliness: "clean" },
    ...others,
  };
}

/** Pages as a capture hands them over, in batches of at most `batchPages`. */
export async function* capture(
  pages: ReadonlyMap<number, Uint8Array>,
  batchPages = 1000,
): AsyncGenerator<PageBatch> {
  const sorted = [...pages.keys()].sort((a, b) => a - b);
  for (let from = 0; from < sorted.length; from += batchPages) {
    const indexes = Uint32Array.from(sorted.slice(from, from + batchPages));
    const bytes = new Uint8Array(indexes.length * PAGE);
    indexes.forEach((index, i) => bytes.set(pages.get(index) ?? new Uint8Array(PAGE), i * PAGE));
    yield await Promise.resolve({ indexes, bytes });
  }
}

/** Pages of an opened checkpoint, by index; checks what a `PageBatch` promises. */
export async function collectPages(opened: OpenedCheckpoint): Promise<Map<number, Uint8Array>> {
  const pages = new Map<number, Uint8Array>();
  let last = -1;
  if (opened.state === null) throw new Error("There is no memory in this checkpoint");
  for await (const { indexes, bytes } of opened.state.pages()) {
    if (bytes.length !== indexes.length * PAGE) throw new Error("A batch has a wrong length");
    if (bytes.length > 16 * 1024 * 1024) throw new Error("A batch is over 16 MiB");
    indexes.forEach((index, i) => {
      if (index <= last) throw new Error("Pages do not ascend");
      last = index;
      pages.set(index, bytes.slice(i * PAGE, (i + 1) * PAGE));
    });
  }
  return pages;
}

/** The first page that only one of them has, or that differs; null where there is none. */
export function differingPage(
  found: ReadonlyMap<number, Uint8Array>,
  expected: ReadonlyMap<number, Uint8Array>,
): number | null {
  for (const index of found.keys()) if (!expected.has(index)) return index;
  for (const [index, page] of expected) {
    const other = found.get(index);
    if (other === undefined || Buffer.compare(page, other) !== 0) return index;
  }
  return null;
}

/** The whole memory of an opened checkpoint: its base file with its pages over it. */
export async function wholeMemory(opened: OpenedCheckpoint): Promise<Buffer> {
  const base = opened.state?.base ?? { kind: "zero" };
  const memory = await baseBytes(base);
  for (const [index, page] of await collectPages(opened)) memory.set(page, index * PAGE);
  return memory;
}

async function baseBytes(base: MemoryBase): Promise<Buffer> {
  return base.kind === "zero" ? Buffer.alloc(MEMORY_BYTES) : await readFile(base.path);
}

/** A generator of numbers below a bound that a seed decides (mulberry32). */
export function seeded(seed: number): (below: number) => number {
  let state = seed >>> 0;
  return (below) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

/** A page of noise, or of text that compresses. */
export function samplePage(draw: (below: number) => number): Uint8Array {
  const page = new Uint8Array(PAGE);
  if (draw(2) === 0) {
    const words = new Uint32Array(page.buffer);
    for (let i = 0; i < words.length; i++) words[i] = draw(2 ** 32);
  } else {
    const word = Buffer.from(`word ${draw(1_000_000)} of a text. `);
    for (let i = 0; i < PAGE; i++) page[i] = word[i % word.length] ?? 0;
  }
  return page;
}

/** A base of which a quarter is noise, a quarter text, the rest holes. */
export function sampleBase(seed: number): Buffer {
  const draw = seeded(seed);
  const base = Buffer.alloc(MEMORY_BYTES);
  for (let index = 0; index < 2048; index++) base.set(samplePage(draw), index * PAGE);
  return base;
}
