/** So many at once, first come, first served; whoever finds none free waits for a while. */
import type { Clock } from "../core/ports/clock.ts";

export class Seats {
  readonly #clock: Pick<Clock, "wait">;
  readonly #waitMs: number;
  #free: number;
  readonly #waiting = new Set<() => void>();

  constructor(clock: Pick<Clock, "wait">, count: number, waitMs: number) {
    this.#clock = clock;
    this.#free = count;
    this.#waitMs = waitMs;
  }

  /** Whether there was one in time: then `leave` gives it back. */
  async enter(): Promise<boolean> {
    if (this.#free > 0) {
      this.#free--;
      return true;
    }
    const called = Promise.withResolvers<true>();
    const call = (): void => called.resolve(true);
    this.#waiting.add(call);
    const over = new AbortController();
    const late = this.#clock.wait(this.#waitMs, over.signal).then(
      () => !this.#waiting.delete(call), // Called meanwhile: then it has one.
      () => true,
    );
    try {
      return await Promise.race([called.promise, late]);
    } finally {
      over.abort();
    }
  }

  leave(): void {
    const [next] = this.#waiting;
    if (next === undefined) {
      this.#free++;
      return;
    }
    this.#waiting.delete(next);
    next();
  }
}
