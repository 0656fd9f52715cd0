/** The host's clocks and generator, behind the port of the core. */
import { randomFillSync } from "node:crypto";
import { setTimeout } from "node:timers/promises";
import type { Clock } from "./core/ports/clock.ts";

/** A single timer holds at most 2^31 − 1 milliseconds; longer waits are made of several. */
const TIMER_MS_MAX = 2 ** 31 - 1;

export function createSystemClock(): Clock {
  return {
    nowMs: () => Date.now(),
    monotonicMs: () => performance.now(),
    wait: async (ms, signal) => {
      signal?.throwIfAborted();
      const until = performance.now() + ms;
      try {
        do {
          const left = Math.max(0, until - performance.now());
          await setTimeout(Math.min(left, TIMER_MS_MAX), undefined, { signal });
        } while (performance.now() < until);
      } catch (error) {
        signal?.throwIfAborted();
        throw error;
      }
    },
    randomBytes: (count) => randomFillSync(new Uint8Array(count)),
  };
}
