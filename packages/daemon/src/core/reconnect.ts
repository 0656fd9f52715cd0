/**
 * Reconnect: a new epoch of the link into a machine that was let out before, after the link broke or
 * the daemon was started again. The clock is set first (the VM may have stood still), then whatever a
 * dead daemon left frozen is thawed.
 */
import { PerdureError } from "@perdure/protocol";
import type { Actor } from "./actor.ts";
import { shortenWaits } from "./guest-clock.ts";
import { engineLimits } from "./limit.ts";
import type { GuestLink } from "./ports/guest-link.ts";
import type { Machine } from "./ports/substrate.ts";
import { checkClock } from "./wake-gate.ts";

/**
 * Lets its CPUs run, should they stand still, connects, syncs, sets the clock, thaws; the actor holds the link.
 * @throws the link's errors, `machine_failed`
 */
export async function connectAgain(actor: Actor): Promise<GuestLink> {
  const machine = actor.requireMachine();
  await machine.run();
  return connectTo(actor, machine);
}

/** As `connectAgain`, to a machine that runs. */
async function connectTo(actor: Actor, machine: Machine): Promise<GuestLink> {
  const link = await actor.parts.links.connect(machine.linkPath);
  const unwatch = closeAtStandstill(machine, link);
  try {
    await link.sync(actor.agent.generation, engineLimits.syncMs);
    checkClock(await link.setClock(engineLimits.clockMs));
    // A wake that moved the clock may have ended before it came to this.
    await shortenWaits(link);
    await actor.egress.open(link);
    await link.thaw();
  } catch (error) {
    link.close("the guest did not answer");
    throw error;
  } finally {
    unwatch();
  }
  link.letOut();
  actor.egress.begin(link);
  actor.hold(link);
  return link;
}

/**
 * Lets a machine go on whose CPUs stood still without a wake: run, clock, thaw; by a new link where the
 * old one is gone. Returns whether the guest answers. Where it does not, the link is closed, so that the
 * next call connects again and thaws; the machine is left alone (I10).
 * @throws `machine_failed` where the VM cannot run
 */
export async function goOn(actor: Actor, machine: Machine): Promise<boolean> {
  await machine.run();
  const { link } = actor;
  const unwatch = link === null ? () => undefined : closeAtStandstill(machine, link);
  try {
    if (link === null) await connectTo(actor, machine);
    else {
      await link.setClock(engineLimits.clockMs);
      await link.thaw();
      link.release();
    }
    return true;
  } catch (error) {
    const { message } = PerdureError.from(error);
    actor.parts.log("warn", "A VM that goes on does not answer", { agent: actor.id, message });
    link?.close("the guest did not answer");
    return false;
  } finally {
    unwatch();
  }
}

/** Nothing is waited for from a VM that stands still (again) for want of room. Returns what ends the watch. */
function closeAtStandstill(machine: Machine, link: GuestLink): () => void {
  return machine.onEvent(({ kind }) => {
    if (kind === "io-error") link.close("its VM stands still for want of room on the disk");
  });
}
