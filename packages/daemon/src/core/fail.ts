/** Failure: named, with a way back, and with everything kept (I10). */
import type { Failure } from "@perdure/protocol";
import type { Actor } from "./actor.ts";

/** The VM is gone: failed, at once, with the newest disk remembered. `wake` recovers. */
export async function crashed(actor: Actor, message: string): Promise<void> {
  await fail(actor, "crashed", message);
}

/**
 * Says why and what leads out, remembers the newest disk, ends the machine. In this order: what cannot be
 * stored is tried again later, with nothing lost until then.
 */
export async function fail(actor: Actor, reason: string, message: string): Promise<void> {
  const { parts, agent } = actor;
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
  await endMachine(actor, reason);
}

export async function endMachine(actor: Actor, reason: string): Promise<void> {
  const { machine } = actor;
  actor.detach(reason);
  await machine?.kill();
}
