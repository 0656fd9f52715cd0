/** Failure: named, with a way back, and with everything kept (I10). */
import type { Failure } from "@perdure/protocol";
import type { Actor } from "./actor.ts";

/** The VM is gone: failed, at once, with the newest disk remembered. `wake` recovers. */
export async function crashed(actor: Actor, message: string): Promise<void> {
  await fail(actor, "crashed", message);
}

/** Ends the machine, remembers the newest disk, says why and what leads out. */
export async function fail(actor: Actor, reason: string, message: string): Promise<void> {
  const { parts, agent } = actor;
  await endMachine(actor, reason);
  const failure: Failure = {
    reason,
    message,
    wayBack: `"perdure wake ${agent.name}" recovers it; "perdure recover ${agent.name} --from checkpoint|disk" chooses the cut`,
    atMs: parts.clock.nowMs(),
  };
  await actor.save({
    state: "failed",
    failure,
    lease: null,
    paused: null,
    disk: actor.newestLayers(),
  });
}

export async function endMachine(actor: Actor, reason: string): Promise<void> {
  const { machine } = actor;
  actor.detach(reason);
  await machine?.kill();
}

/**
 * An agent that counts as awake and has no machine: it ended while that could not be stored (a full disk).
 * Noticed by whatever is asked of the agent next. Holds the lane.
 */
export async function noticeLost(actor: Actor): Promise<void> {
  if (actor.agent.state === "awake" && actor.machine === null) {
    await crashed(actor, "The VM ended, and that could not be recorded when it happened");
  }
}
