/**
 * Memory of a fake machine: an immutable base and private pages over it. What the guest model keeps is
 * written into pages when the CPUs stop, so that a checkpoint carries it and a wake finds it.
 */
import { createHash } from "node:crypto";
import { PAGE_BYTES, PerdureError } from "@perdure/protocol";
import type { PageBatch } from "../../core/ports/page.ts";

/** Where the guest's state begins: a length of four bytes, then the state. */
const STATE_PAGE = 16;
const BATCH_PAGES = 8;

export class FakeMemory {
  readonly pageCount: number;
  readonly #base: Uint8Array | null;
  readonly #pages = new Map<number, Uint8Array>();

  constructor(memoryBytes: number, base: Uint8Array | null) {
    if (base !== null && base.length !== memoryBytes) {
      throw new PerdureError("machine_start_failed", "The memory base has another size");
    }
    this.pageCount = memoryBytes / PAGE_BYTES;
    this.#base = base;
  }

  page(index: number): Uint8Array {
    const at = index * PAGE_BYTES;
    return this.#pages.get(index) ?? this.#base?.subarray(at, at + PAGE_BYTES) ?? zeroPage;
  }

  put(index: number, bytes: Uint8Array): void {
    if (index >= this.pageCount) {
      throw new PerdureError("machine_failed", `Page ${index} lies outside of memory`);
    }
    this.#pages.set(index, Uint8Array.from(bytes));
  }

  /** Indexes that were written since the base was mapped, ascending. */
  privatePages(): Uint32Array<ArrayBuffer> {
    return Uint32Array.from([...this.#pages.keys()].sort((one, two) => one - two));
  }

  *batches(indexes: Uint32Array): Iterable<PageBatch> {
    for (let from = 0; from < indexes.length; from += BATCH_PAGES) {
      const part = Uint32Array.from(indexes.subarray(from, from + BATCH_PAGES));
      const bytes = new Uint8Array(part.length * PAGE_BYTES);
      part.forEach((index, i) => bytes.set(this.page(index), i * PAGE_BYTES));
      yield { indexes: part, bytes };
    }
  }

  /** Keeps the guest's state; pages that already hold it stay as they are. */
  keepState(state: Uint8Array): void {
    const framed = new Uint8Array(Math.ceil((4 + state.length) / PAGE_BYTES) * PAGE_BYTES);
    new DataView(framed.buffer).setUint32(0, state.length);
    framed.set(state, 4);
    for (let at = 0; at < framed.length; at += PAGE_BYTES) {
      const index = STATE_PAGE + at / PAGE_BYTES;
      const bytes = framed.subarray(at, at + PAGE_BYTES);
      if (Buffer.compare(bytes, this.page(index)) !== 0) this.put(index, bytes);
    }
  }

  state(): Uint8Array {
    const first = this.page(STATE_PAGE);
    const { buffer, byteOffset } = first;
    const length = new DataView(buffer, byteOffset).getUint32(0);
    const pages = Math.ceil((4 + length) / PAGE_BYTES);
    const whole = Buffer.concat(Array.from({ length: pages }, (_, i) => this.page(STATE_PAGE + i)));
    return Uint8Array.from(whole.subarray(4, 4 + length));
  }

  /** Digest of what a reader of this memory sees; zero pages count as absent. */
  digest(): string {
    const sums = new Map(this.#base === null ? [] : baseSums(this.#base));
    for (const [index, page] of this.#pages) {
      const sum = pageSum(page);
      if (sum === null) sums.delete(index);
      else sums.set(index, sum);
    }
    const hash = createHash("sha256");
    for (const [index, sum] of [...sums].sort(([one], [two]) => one - two)) {
      hash.update(`${index}:${sum};`);
    }
    return hash.digest("hex");
  }

  whole(): Uint8Array {
    const all = new Uint8Array(this.pageCount * PAGE_BYTES);
    if (this.#base !== null) all.set(this.#base);
    for (const [index, page] of this.#pages) all.set(page, index * PAGE_BYTES);
    return all;
  }
}

const zeroPage = new Uint8Array(PAGE_BYTES);

/** Sums of the pages of bases, which never change: by the bytes that hold them. */
const sumsOfBases = new WeakMap<Uint8Array, ReadonlyMap<number, string>>();

function baseSums(base: Uint8Array): ReadonlyMap<number, string> {
  const known = sumsOfBases.get(base);
  if (known !== undefined) return known;
  const sums = new Map<number, string>();
  for (let at = 0; at < base.length; at += PAGE_BYTES) {
    const sum = pageSum(base.subarray(at, at + PAGE_BYTES));
    if (sum !== null) sums.set(at / PAGE_BYTES, sum);
  }
  sumsOfBases.set(base, sums);
  return sums;
}

/** Null for a page of zeros. */
function pageSum(page: Uint8Array): string | null {
  if (Buffer.compare(page, zeroPage) === 0) return null;
  return createHash("sha256").update(page).digest("base64");
}
