/**
 * Waits of programs inside: which of the timers that a guest shows are waits that an agent is woken for,
 * and which are polling. A timer that was already there with the same due time half an idle time ago is a
 * wait; a loop that sleeps for a moment shows another due time at each look.
 */
import type { GuestTimer } from "./ports/guest-link.ts";

/** Two looks at one timer may tell due times that differ by so much: its age in transit. */
const SAME_DUE_MS = 250;
/** Waits that are remembered; the soonest ones. */
const WAITS_MAX = 512;

interface Wait {
  /** Monotonic milliseconds of the host. */
  readonly dueMs: number;
  readonly firstSeenMs: number;
}

export class WaitLog {
  #waits: readonly Wait[] = [];

  /** Takes in what the guest shows at `nowMs`, monotonic. What it no longer shows has ended. */
  look(timers: readonly GuestTimer[], nowMs: number): void {
    const dues = timers.map(({ dueInMs }) => nowMs + dueInMs).sort((one, two) => one - two);
    const before = this.#waits;
    let at = 0;
    this.#waits = dues.slice(0, WAITS_MAX).map((dueMs) => {
      while ((before[at]?.dueMs ?? Infinity) < dueMs - SAME_DUE_MS) at++;
      const same = before[at];
      if (same === undefined || same.dueMs > dueMs + SAME_DUE_MS)
        return { dueMs, firstSeenMs: nowMs };
      // The oldest word of it: each look tells it a little later than it is.
      return { dueMs: Math.min(dueMs, same.dueMs), firstSeenMs: same.firstSeenMs };
    });
  }

  /**
   * When the first real wait is due, monotonic; null: there is none.
   *
   * @param ageMs how long it must have been there
   * @param farMs one that is due no sooner is taken for a wait though it was not there for long
   */
  firstDueMs(nowMs: number, ageMs: number, farMs = Infinity): number | null {
    const real = this.#waits.find(
      ({ dueMs, firstSeenMs }) =>
        dueMs > nowMs && (nowMs - firstSeenMs >= ageMs || dueMs - nowMs >= farMs),
    );
    return real?.dueMs ?? null;
  }
}
