/** The host's own clock, for links that are not given another one. */
import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { Clock } from "../core/ports/clock.ts";

export const hostClock: Clock = {
  nowMs: () => Date.now(),
  monotonicMs: () => performance.now(),
  wait: (ms, signal) => sleep(ms, undefined, signal === undefined ? {} : { signal }),
  randomBytes: (count) => new Uint8Array(randomBytes(count)),
};
