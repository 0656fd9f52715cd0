/** Failure: named, with a way back, and with everything kept (I10). */
import { PerdureError, type ErrorCode, type Failure } from "@perdure/protocol";
import type { Actor } from "./actor.ts";
import { wayBackOf } from "./legality.ts";
import { engineLimits } from "./limit.ts";
import { agentPaused, waitsForRoom } from "./no-room.ts";
import type { Clock } from "./ports/clock.ts";
import type { Machine, MachineEvent } from "./ports/substrate.ts";

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
    wayBack: wayBackOf(agent),
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

/** What a VM that ends under a verb breaks first arrives as one of these. */
const ofAnEnd: readonly ErrorCode[] = ["machine_failed", "guest_unreachable", "internal"];

/** What is heard of a guest whose CPUs stand still. */
const ofSilence: readonly ErrorCode[] = [
  "guest_timeout",
  "flush_timeout",
  "freeze_timeout",
  "deadline_exceeded",
];

/**
 * What a verb that failed tells its caller. Where the VM has ended under it, that, and the way back; what
 * broke first (a link, a monitor, a file of /proc) is the cause. Asked before the machine is ended on
 * purpose: from then on it tells nothing.
 *
 * @param during what the VM ended in the middle of: `a checkpoint`
 */
export async function whyFailed(
  { agent, parts }: Actor,
  machine: Machine,
  during: string,
  error: unknown,
  wayBack: string = wayBackOf(agent),
): Promise<PerdureError> {
  const known = PerdureError.from(error);
  if (ofSilence.includes(known.code) && waitsForRoom(machine)) {
    return agentPaused(agent, agent.paused ?? "disk full");
  }
  if (!ofAnEnd.includes(known.code)) return known;
  const end = await endOf(machine, parts.clock);
  if (end === null) return known;
  return new PerdureError(
    "machine_failed",
    `The VM of agent "${agent.name}" ended during ${during}: ${end.detail}`,
    { hint: wayBack, cause: error },
  );
}

async function endOf(machine: Machine, clock: Clock): Promise<MachineEvent | null> {
  const stop = new AbortController();
  const { promise, resolve } = Promise.withResolvers<MachineEvent>();
  const unwatch = machine.onEvent((event) => {
    if (event.kind === "exited") resolve(event);
  });
  const late = clock.wait(engineLimits.endKnownMs, stop.signal).then(() => null);
  // Where the end is known there is nobody who waits for this one.
  late.catch(() => undefined);
  try {
    return await Promise.race([promise, late]);
  } finally {
    unwatch();
    stop.abort();
  }
}
