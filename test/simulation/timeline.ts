/**
 * Simulated time. It stands still until a test moves it: `driveUntil` lets everything run that can, and
 * only when nothing can any more it jumps to the next timer.
 */
import type { Clock } from "../../packages/daemon/src/core/ports/clock.ts";
import type { Life } from "../../packages/daemon/src/substrate/fake/life.ts";
import type { Random } from "./random.ts";

interface Timer {
  readonly atMs: number;
  readonly fire: () => void;
}

/** Simulated time that one `driveUntil` may take. */
const DRIVE_MS_MAX = 3_600_000;

export class Timeline {
  nowMs: number;
  /** Work outside of this thread that time must wait for. */
  pendingWork = 0;
  readonly #random: Random;
  readonly #startMs: number;
  readonly #timers = new Set<Timer>();

  constructor(startMs: number, random: Random) {
    this.nowMs = startMs;
    this.#startMs = startMs;
    this.#random = random;
  }

  /** The clock of one daemon: its waits end with its life. */
  clock(life: Life): Clock {
    return {
      // Timers may be due between two milliseconds; a host's clock tells none of that.
      nowMs: () => Math.floor(this.nowMs),
      monotonicMs: () => this.nowMs - this.#startMs,
      randomBytes: (count) => this.#random.bytes(count),
      wait: async (ms, signal) => {
        await this.wait(ms, signal);
        await life.pass();
      },
    };
  }

  wait(ms: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const timer = { atMs: this.nowMs + ms, fire: resolve };
      const abort = (): void => {
        this.#timers.delete(timer);
        reject(signal?.reason as Error);
      };
      if (signal?.aborted === true) {
        abort();
        return;
      }
      signal?.addEventListener("abort", abort, { once: true });
      this.#timers.add(timer);
    });
  }

  /** Lets everything run that needs no time to pass. */
  async flush(): Promise<void> {
    // Twice: what is set off in the first round may put off something of its own by one.
    for (let quiet = 0; quiet < 2; quiet = this.pendingWork > 0 ? 0 : quiet + 1) {
      await new Promise<void>((resume) => setImmediate(resume));
    }
  }

  async advance(ms: number): Promise<void> {
    const untilMs = this.nowMs + ms;
    await this.flush();
    for (let next = this.#next(); next !== null && next.atMs <= untilMs; next = this.#next()) {
      this.#fire(next);
      await this.flush();
    }
    this.nowMs = untilMs;
  }

  /** The outcome of `work`; time passes only as far as it must. @throws where nothing can happen */
  async driveUntil<T>(work: Promise<T>): Promise<T> {
    const progress = { settled: false };
    const mark = (): void => void (progress.settled = true);
    work.then(mark, mark);
    const startMs = this.nowMs;
    for (;;) {
      await this.flush();
      if (progress.settled) return work;
      const next = this.#next();
      if (next === null) throw new Error("Stuck: nothing is left that could happen");
      if (next.atMs - startMs > DRIVE_MS_MAX) throw new Error("Stuck: no end within an hour");
      this.#fire(next);
    }
  }

  #next(): Timer | null {
    let first: Timer | null = null;
    for (const timer of this.#timers) if (first === null || timer.atMs < first.atMs) first = timer;
    return first;
  }

  #fire(timer: Timer): void {
    this.#timers.delete(timer);
    this.nowMs = Math.max(this.nowMs, timer.atMs);
    timer.fire();
  }
}
