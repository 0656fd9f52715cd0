/**
 * Quarantine: nothing of the agent is let out, and nobody is let in but the operator. An operator says so, or
 * the wake gate, which has then ended the attempt and left the checkpoint as it was.
 *
 * Barring comes before keeping: an awake agent that cannot be put to sleep (its disk is full, its VM does not
 * answer) is ended, and what was in memory alone since its last checkpoint is lost. It is then barred as failed.
 *
 * The way through: look at it (`fork` of a checkpoint, `report`, `why`), then `release` (the operator's word
 * that it may go on), `recover` or `restore` (another continuation), or `remove`.
 */
import { PerdureError } from "@perdure/protocol";
import type { Actor } from "./actor.ts";
import { settledBefore } from "./keep.ts";
import { fail } from "./fail.ts";
import { sleep } from "./sleep.ts";

/** Puts an awake agent to sleep, whoever calls meanwhile, or ends it, and bars it. Holds the lane. */
export async function quarantine(actor: Actor, reason: string): Promise<void> {
  if (actor.agent.state === "awake") await bringToRest(actor);
  const from = settledBefore(actor.agent.state);
  await actor.save({ state: "quarantined", quarantine: { reason, from } });
}

async function bringToRest(actor: Actor): Promise<void> {
  try {
    await sleep(actor, { cancellable: false });
  } catch (error) {
    const { state } = actor.agent;
    // What ended it under the sleep has brought it to rest as well.
    if (state === "failed") return;
    if (state !== "awake") throw error;
    const { message } = PerdureError.from(error);
    await fail(actor, "quarantined", `It was ended, as it could not be put to sleep: ${message}`);
  }
}

/** The agent may go on as it was. Holds the lane. */
export async function release(actor: Actor): Promise<void> {
  const from = actor.agent.quarantine?.from ?? "failed";
  await actor.save({ state: from, quarantine: null });
}
