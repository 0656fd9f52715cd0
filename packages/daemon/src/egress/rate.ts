/** How often something may happen: some at once, and then so many a second (a token bucket). */
import type { Clock } from "../core/ports/clock.ts";

export class Rate {
  readonly #clock: Pick<Clock, "monotonicMs">;
  readonly #perSecond: number;
  readonly #atOnce: number;
  #left: number;
  #atMs: number;

  constructor(clock: Pick<Clock, "monotonicMs">, perSecond: number, atOnce: number) {
    this.#clock = clock;
    this.#perSecond = perSecond;
    this.#atOnce = atOnce;
    this.#left = atOnce;
    this.#atMs = clock.monotonicMs();
  }

  /** Whether it may happen once more now. */
  take(): boolean {
    const nowMs = this.#clock.monotonicMs();
    const refilled = this.#left + ((nowMs - this.#atMs) / 1000) * this.#perSecond;
    this.#left = Math.min(this.#atOnce, refilled);
    this.#atMs = nowMs;
    if (this.#left < 1) return false;
    this.#left -= 1;
    return true;
  }
}
