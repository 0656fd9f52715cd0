/** Where the time of a verb went: milliseconds between marks, by name. */
import type { Clock } from "./ports/clock.ts";

export class Phases {
  readonly #clock: Clock;
  readonly #startMs: number;
  #lastMs: number;
  #marks: Record<string, number> = {};

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#startMs = clock.monotonicMs();
    this.#lastMs = this.#startMs;
  }

  mark(name: string): void {
    const nowMs = this.#clock.monotonicMs();
    this.#marks[name] = rounded(nowMs - this.#lastMs);
    this.#lastMs = nowMs;
  }

  get totalMs(): number {
    return rounded(this.#lastMs - this.#startMs);
  }

  get all(): Record<string, number> {
    return { ...this.#marks, total: this.totalMs };
  }
}

function rounded(ms: number): number {
  return Math.round(ms * 100) / 100;
}
