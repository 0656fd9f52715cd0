/**
 * Turns: how many pieces of heavy work go on at the same time. What is begun beyond that waits, first come,
 * first served: a host on which everything goes on at once finishes everything last, and what waits for an
 * answer runs into its deadline.
 *
 * - A turn is lent for a while: work that takes longer keeps on, but no longer keeps the next one out. Nothing
 *   that hangs stops the others.
 */
import type { Clock } from "./ports/clock.ts";

export interface TurnsOptions {
  readonly atOnce: number;
  /** After this long the next one begins, whether the one before has ended or not. */
  readonly lendMs: number;
}

export class Turns {
  readonly #clock: Clock;
  readonly #options: TurnsOptions;
  readonly #waiting: (() => void)[] = [];
  #free: number;

  constructor(clock: Clock, options: TurnsOptions) {
    this.#clock = clock;
    this.#options = options;
    this.#free = options.atOnce;
  }

  async run<T>(work: () => Promise<T>): Promise<T> {
    const giveBack = await this.#take();
    try {
      return await work();
    } finally {
      giveBack();
    }
  }

  async #take(): Promise<() => void> {
    if (this.#free > 0) this.#free--;
    else await new Promise<void>((begin) => this.#waiting.push(begin));
    const done = new AbortController();
    let isLent = true;
    const giveBack = (): void => {
      if (!isLent) return;
      isLent = false;
      done.abort();
      const next = this.#waiting.shift();
      if (next === undefined) this.#free++;
      else next();
    };
    this.#clock.wait(this.#options.lendMs, done.signal).then(giveBack, () => undefined);
    return giveBack;
  }
}
