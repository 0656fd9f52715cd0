/**
 * Quarantine: nothing of the agent is let out, and nobody is let in but the operator. An operator says so, or
 * the wake gate, which has then ended the attempt and left the checkpoint as it was.
 *
 * The way through: look at it (`fork` of a checkpoint, `report`, `why`), then `release` (the operator's word
 * that it may go on), `recover` or `restore` (another continuation), or `remove`.
 */
import type { Actor } from "./actor.ts";
import { settledBefore } from "./keep.ts";
import { sleep } from "./sleep.ts";

/** Puts an awake agent to sleep, whoever calls meanwhile, and bars it. Holds the lane. */
export async function quarantine(actor: Actor, reason: string): Promise<void> {
  if (actor.agent.state === "awake") await sleep(actor, { cancellable: false });
  const from = settledBefore(actor.agent.state);
  await actor.save({ state: "quarantined", quarantine: { reason, from } });
}

/** The agent may go on as it was. Holds the lane. */
export async function release(actor: Actor): Promise<void> {
  const from = actor.agent.quarantine?.from ?? "failed";
  await actor.save({ state: from, quarantine: null });
}
