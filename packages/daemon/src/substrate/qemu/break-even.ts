/**
 * Break-even: how much memory can be injected while another VM process starts. Both rates are measured
 * as they come by; hosts differ in both by a factor of ten.
 */

/** Until something was measured: a small host under software emulation. */
const startMsAtFirst = 90;
const bytesPerMsAtFirst = 1_000_000;
/** Fewer bytes say more about the first system call than about the rate. */
const measuredBytesMin = 8 * 1024 * 1024;
/**
 * Bounds within which the answer stays, whatever a busy moment measured. A base is the whole memory on
 * the disk, so little is never worth one.
 */
const limits = { min: 32 * 1024 * 1024, max: 256 * 1024 * 1024 };
const remembered = 9;

export class BreakEven {
  readonly #startMs = new Recent(startMsAtFirst);
  readonly #bytesPerMs = new Recent(bytesPerMsAtFirst);

  /** A VM process took this long from the request until it waited for state. */
  started(ms: number): void {
    this.#startMs.add(ms);
  }

  /** So many bytes were injected in this time, reading them included. */
  injected(bytes: number, ms: number): void {
    if (bytes >= measuredBytesMin) this.#bytesPerMs.add(bytes / Math.max(ms, 1));
  }

  get bytes(): number {
    const bytes = this.#startMs.median * this.#bytesPerMs.median;
    return Math.min(Math.max(bytes, limits.min), limits.max);
  }
}

/** The median of the last few values. */
class Recent {
  readonly #values: number[] = [];
  readonly #atFirst: number;

  constructor(atFirst: number) {
    this.#atFirst = atFirst;
  }

  add(value: number): void {
    this.#values.push(value);
    if (this.#values.length > remembered) this.#values.shift();
  }

  get median(): number {
    const sorted = this.#values.toSorted((a, b) => a - b);
    return sorted[sorted.length >> 1] ?? this.#atFirst;
  }
}
