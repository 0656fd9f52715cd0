/**
 * Callers: who uses an agent from outside at this moment, and when somebody did last. A stream counts for as
 * long as it is read. What Perdure itself asks of a guest is no caller.
 */
import type { Clock } from "./ports/clock.ts";

export class Callers {
  readonly #clock: Clock;
  #count = 0;
  #lastMs: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#lastMs = clock.monotonicMs();
  }

  /** How many there are. */
  get count(): number {
    return this.#count;
  }

  /** When somebody was there last, monotonic milliseconds; now, where somebody is. */
  get lastMs(): number {
    return this.#count > 0 ? this.#clock.monotonicMs() : this.#lastMs;
  }

  /** One more; what is returned says that it has gone, once. */
  enter(): () => void {
    this.#count++;
    let there = true;
    return () => {
      if (!there) return;
      there = false;
      this.#count--;
      this.#lastMs = this.#clock.monotonicMs();
    };
  }

  /** One more until `work` has ended, or `gone` aborts. */
  async during<T>(work: Promise<T>, gone?: AbortSignal): Promise<T> {
    const leave = this.enter();
    if (gone?.aborted === true) leave();
    gone?.addEventListener("abort", leave, { once: true });
    try {
      return await work;
    } finally {
      gone?.removeEventListener("abort", leave);
      leave();
    }
  }

  /** Counts whoever reads `pieces`, from the first that is asked for until the end. */
  reading<T>(pieces: AsyncIterator<T>): AsyncIterator<T> {
    let leave = (): void => undefined;
    let begun = false;
    return {
      next: async () => {
        if (!begun) leave = this.enter();
        begun = true;
        try {
          const next = await pieces.next();
          if (next.done === true) leave();
          return next;
        } catch (error) {
          leave();
          throw error;
        }
      },
      return: async () => {
        leave();
        return (await pieces.return?.()) ?? { done: true, value: undefined };
      },
    };
  }
}
