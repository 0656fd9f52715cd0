/** Deadlines of the guest link. Generous: software emulation on a busy host is many times slower. */
import type { Clock } from "../core/ports/clock.ts";

/** A control operation that the guest answers by itself, at once. */
export const CONTROL_DEADLINE_MS = 30_000;
/** What an operation with a deadline of its own gets on top, for the answer to travel. */
export const ANSWER_GRACE_MS = 5_000;
/** A user's operation: a child process must be started inside. */
export const USER_DEADLINE_MS = 60_000;
/** From the last byte of a file to "written": 2 GiB may have to be flushed. */
export const WRITTEN_DEADLINE_MS = 600_000;
/** A file transfer in which the guest moves nothing for this long has failed. */
export const PROGRESS_DEADLINE_MS = 300_000;

const TIMER_MS_MAX = 2 ** 31 - 1;

/** Calls `expired` after `ms`, unless the function that it returns was called first. */
export function startDeadline(clock: Clock, ms: number, expired: () => void): () => void {
  const controller = new AbortController();
  const bounded = Math.min(Math.max(ms, 0), TIMER_MS_MAX);
  clock.wait(bounded, controller.signal).then(expired, () => undefined);
  return () => controller.abort();
}
