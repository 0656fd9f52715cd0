/** Waiting with an end: no step of a VM process is trusted to finish on its own. */
import { PerdureError } from "@perdure/protocol";
import type { Clock } from "../../core/ports/clock.ts";

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
      hint: "The VM process hangs; kill the machine.",
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
