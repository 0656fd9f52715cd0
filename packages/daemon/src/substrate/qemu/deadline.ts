/** Waiting with an end: no step of a VM process is trusted to finish on its own. */
import { PerdureError } from "@perdure/protocol";
import type { Clock } from "../../core/ports/clock.ts";

/** Of one that is being started as of one that an agent has been in for long: what holds of both. */
export const HANGS_HINT =
  "The host may be overloaded, or its disk stuck. Try again: a VM process that was being started is replaced, " +
  'one of an awake agent is used again when it answers. Where it never does, "perdure quarantine AGENT --reason hangs" ' +
  'ends it, and "perdure recover AGENT" goes on from its last checkpoint or its newest disk.';

/**
 * The result of `work`, or `machine_failed` with `what` after `ms`. The work itself is not ended; its
 * late result is dropped.
 */
export async function withDeadline<T>(
  clock: Clock,
  ms: number,
  what: string,
  work: Promise<T>,
): Promise<T> {
  const stop = new AbortController();
  const late = clock.wait(ms, stop.signal).then(() => {
    throw new PerdureError("machine_failed", `${what}: no answer within ${ms} ms`, {
      hint: HANGS_HINT,
    });
  });
  // Whichever promise loses has nobody waiting for it.
  late.catch(() => undefined);
  work.catch(() => undefined);
  try {
    return await Promise.race([work, late]);
  } finally {
    stop.abort();
  }
}
