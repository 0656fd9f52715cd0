/** Whether a daemon answers. One that is there and stands still is not waited for without end. */
import { PerdureError } from "@perdure/sdk";
import type { Health, Perdure } from "@perdure/sdk";

const ANSWER_MS = 10_000;

/** @throws `daemon_unreachable`; `deadline_exceeded` where one is there that does not answer in time */
export async function askDaemon(perdure: Perdure, withinMs = ANSWER_MS): Promise<Health> {
  const late = AbortSignal.timeout(withinMs);
  try {
    return await perdure.health({ signal: late });
  } catch (error) {
    if (!late.aborted) throw error;
    throw new PerdureError(
      "deadline_exceeded",
      `The daemon is there, but did not answer within ${withinMs / 1000} s`,
      { hint: "It may be stopped, or its host may have too much to do. Its log may say more." },
    );
  }
}
