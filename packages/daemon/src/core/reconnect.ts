/**
 * Reconnect: a new epoch of the link into a machine that was let out before, after the link broke or
 * the daemon was started again. The clock is set first (the VM may have stood still), then whatever a
 * dead daemon left frozen is thawed.
 */
import type { Actor } from "./actor.ts";
import { engineLimits } from "./limit.ts";
import type { GuestLink } from "./ports/guest-link.ts";
import { checkClock } from "./wake-gate.ts";

/** Connects, syncs, sets the clock, thaws; the actor holds the link. @throws the link's errors */
export async function connectAgain(actor: Actor): Promise<GuestLink> {
  const machine = actor.requireMachine();
  const link = await actor.parts.links.connect(machine.linkPath);
  try {
    await link.sync(actor.agent.generation, engineLimits.syncMs);
    checkClock(await link.setClock(engineLimits.clockMs));
    await link.thaw();
  } catch (error) {
    link.close("the guest did not answer");
    throw error;
  }
  link.letOut();
  actor.hold(link);
  return link;
}
