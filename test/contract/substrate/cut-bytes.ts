/** A cut as plain bytes. */
import { createHash } from "node:crypto";
import { PAGE_BYTES } from "@perdure/protocol";
import { expect } from "vitest";
import {
  PAGE_BATCH_BYTES_MAX,
  type PageBatch,
} from "../../../packages/daemon/src/core/ports/page.ts";
import type { Machine } from "../../../packages/daemon/src/core/ports/substrate.ts";

export interface Cut {
  readonly indexes: Uint32Array<ArrayBuffer>;
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly devices: Uint8Array;
  readonly layers: readonly string[];
}

export async function* batchesOf(cut: Pick<Cut, "indexes" | "bytes">): AsyncGenerator<PageBatch> {
  const pages = PAGE_BATCH_BYTES_MAX / PAGE_BYTES;
  for (let at = 0; at < cut.indexes.length; at += pages) {
    const indexes = cut.indexes.slice(at, at + pages);
    const bytes = cut.bytes.slice(at * PAGE_BYTES, (at + indexes.length) * PAGE_BYTES);
    yield await Promise.resolve({ indexes, bytes });
  }
}

/** The pages of a cut, which come in no order. */
export function joined(batches: readonly PageBatch[]): Pick<Cut, "indexes" | "bytes"> {
  const all = batches.flatMap(({ indexes, bytes }) =>
    [...indexes].map((index, i) => ({
      index,
      page: bytes.subarray(i * PAGE_BYTES, (i + 1) * PAGE_BYTES),
    })),
  );
  const sorted = all.toSorted((a, b) => a.index - b.index);
  const indexes = Uint32Array.from(sorted, ({ index }) => index);
  expect(new Set(indexes).size).toBe(indexes.length);
  const bytes = new Uint8Array(indexes.length * PAGE_BYTES);
  sorted.forEach(({ page }, i) => bytes.set(page, i * PAGE_BYTES));
  return { indexes, bytes };
}

export async function pagesOf(
  machine: Machine,
  indexes: Uint32Array<ArrayBuffer>,
): Promise<Uint8Array<ArrayBuffer>> {
  const bytes = new Uint8Array(indexes.length * PAGE_BYTES);
  let at = 0;
  for await (const batch of machine.readPages(indexes)) {
    bytes.set(batch.bytes, at);
    at += batch.bytes.length;
  }
  expect(at).toBe(bytes.length);
  return bytes;
}

export function sha256(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}
