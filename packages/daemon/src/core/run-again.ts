/**
 * Run again: a VM whose CPUs stand still, for want of room or because its process did not answer, is tried until it
 * runs on, and then until its guest answers: only then its clock is right and what a cut has frozen meanwhile is
 * thawed.
 */
import type { Actor } from "./actor.ts";
import { growDisk } from "./grow.ts";
import { engineLimits } from "./limit.ts";
import type { Machine } from "./ports/substrate.ts";
import { goOn } from "./reconnect.ts";

/** Begins to try, in the background. Holds the lane. */
export function runAgain(actor: Actor): void {
  const { machine } = actor;
  // A try that fails tells of it again, and so does a VM that paused anew while it was asked to answer.
  if (machine === null || retried.has(machine)) return;
  retried.add(machine);
  void retry(actor, machine);
}

/** Machines that a loop of tries is under way for. Changed in the agent's lane alone. */
const retried = new WeakSet<Machine>();

async function retry(actor: Actor, machine: Machine): Promise<void> {
  const { clock } = actor.parts;
  let answersLeft: number = engineLimits.pausedAnswersMax;
  const tryOnce = async (): Promise<boolean> => {
    if (actor.machine !== machine) return true;
    try {
      await machine.run();
      if (!(await machine.isRunning())) {
        answersLeft = engineLimits.pausedAnswersMax;
        return false;
      }
      if (actor.agent.paused !== null) await actor.save({ paused: null });
      answersLeft--;
      return (await goOn(actor, machine)) || answersLeft <= 0;
    } catch {
      return answersLeft <= 0;
    }
  };
  for (let done = false; !done;) {
    await clock.wait(engineLimits.pausedRetryMs);
    done = await actor.lane.exclusive(async () => {
      const over = await tryOnce();
      if (!over) return false;
      retried.delete(machine);
      if (actor.machine === machine) await growDisk(actor);
      return true;
    });
  }
}
