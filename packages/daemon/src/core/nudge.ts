/** Nudge: a wait that ends early for a word. What is said from `arm` on counts, also before the wait begins. */
import type { Clock } from "./ports/clock.ts";

export class Nudge {
  readonly #clock: Clock;
  #said = new AbortController();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Ends the wait that is armed. */
  say(): void {
    this.#said.abort();
  }

  /** Whether a word has come since it was armed. */
  get isSaid(): boolean {
    return this.#said.signal.aborted;
  }

  /**
   * Begins anew, before whatever a nudge is about is looked at. What is returned waits `ms` (Infinity: for a word
   * alone), unless a nudge or `stop` comes first.
   */
  arm(stop: AbortSignal): (ms: number) => Promise<void> {
    this.#said = new AbortController();
    const until = AbortSignal.any([stop, this.#said.signal]);
    return async (ms) => {
      try {
        await (ms === Infinity ? aborted(until) : this.#clock.wait(ms, until));
      } catch (error) {
        if (!until.aborted) throw error;
      }
    };
  }
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    signal.addEventListener("abort", () => resolve(), { once: true });
  });
}
