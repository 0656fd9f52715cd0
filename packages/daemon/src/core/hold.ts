/** Holds and settings: what the owner says about an agent's rest. Stored in its row; its attendance looks at once. */
import { PerdureError, restLimits } from "@perdure/protocol";
import type { Failure, Hold, OnCrash } from "@perdure/protocol";
import type { Actor } from "./actor.ts";
import type { Agent } from "./agent.ts";
import type { Configure, HoldAwake } from "./command.ts";
import { growDisk } from "./grow.ts";
import { wayBackOf } from "./legality.ts";
import { ownerChanges } from "./owner.ts";
import { resized } from "./size.ts";

/**
 * Changes settings; what is absent stays as it is. All of them are stored, or none; then the disk of an awake
 * agent grows, while calls go on. Holds the lane. @throws `bad_request` where the disk would shrink
 */
export async function configure(actor: Actor, command: Configure): Promise<void> {
  const { onCrash, idleAfterMs, checkpointEveryMs, wakeAtMs } = command;
  await actor.save({
    ...resized(actor.agent, command),
    ...(onCrash === undefined ? {} : { onCrash, failure: failureFor(actor.agent, onCrash) }),
    ...(idleAfterMs === undefined ? {} : { idleAfterMs }),
    ...(checkpointEveryMs === undefined ? {} : { checkpointEveryMs }),
    ...(wakeAtMs === undefined ? {} : { wakeAtMs }),
    ...ownerChanges(actor.agent, command, actor.parts.clock.nowMs()),
  });
  actor.attendance?.nudge();
  if (command.diskBytes === undefined) return;
  await actor.step("grow.recorded");
  actor.lane.letCallsIn();
  await growDisk(actor);
}

/** What leads out of it depends on the setting. */
function failureFor({ name, failure }: Agent, onCrash: OnCrash): Failure | null {
  return failure === null ? null : { ...failure, wayBack: wayBackOf({ name, onCrash }) };
}

/** Holds the awake agent. Holds the lane. @throws `too_many` */
export async function hold(actor: Actor, { forMs, reason }: HoldAwake): Promise<Hold> {
  const nowMs = actor.parts.clock.nowMs();
  const { holds } = actor.agent;
  const live = holds.filter(({ untilMs }) => untilMs > nowMs);
  if (live.length >= restLimits.holdsMax) {
    const { name } = actor.agent;
    throw new PerdureError(
      "too_many",
      `Agent "${name}" has ${live.length} holds, at most ${restLimits.holdsMax} fit`,
      {
        hint: `"perdure hold ${name} --end HOLD" ends one; "perdure show ${name}" lists them`,
      },
    );
  }
  const id = 1 + Math.max(actor.agent.holdsMade ?? 0, ...holds.map((one) => one.id));
  const made: Hold = { id, reason, untilMs: nowMs + forMs };
  await actor.save({ holds: [...live, made], holdsMade: id });
  actor.attendance?.nudge();
  return made;
}

/** Ends a hold before its time. Holds the lane. @throws `hold_not_found` */
export async function endHold(actor: Actor, hold: number): Promise<void> {
  const { holds, name } = actor.agent;
  const nowMs = actor.parts.clock.nowMs();
  const live = holds.filter(({ untilMs }) => untilMs > nowMs);
  if (!live.some(({ id }) => id === hold)) {
    throw new PerdureError("hold_not_found", `Agent "${name}" has no hold ${hold}`, {
      hint: `"perdure show ${name}" lists those that it has; one whose time is over has ended by itself`,
    });
  }
  await actor.save({ holds: live.filter(({ id }) => id !== hold) });
  actor.attendance?.nudge();
}
