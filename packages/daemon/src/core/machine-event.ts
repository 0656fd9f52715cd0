/**
 * What a machine does on its own: it crashes, the guest reboots, powers off or panics, the host's disk
 * fills up. Each becomes a named state; nothing resets inside a VMM, and failure destroys no state (I10).
 */
import type { Actor } from "./actor.ts";
import { crashed, endMachine, fail } from "./fail.ts";
import { engineLimits } from "./limit.ts";
import type { MachineEvent } from "./ports/substrate.ts";
import { goOn } from "./reconnect.ts";
import { startCold } from "./start.ts";
import { becomeStopped } from "./stop.ts";

/** Does what `event` asks for. Holds the lane; the event is of the actor's present machine. */
export async function handleMachineEvent(actor: Actor, event: MachineEvent): Promise<void> {
  switch (event.kind) {
    case "exited":
      await crashed(actor, `The VM process ended: ${event.detail}`);
      return;
    case "panic":
      actor.parts.log("warn", "A guest's kernel panicked", {
        agent: actor.id,
        console: event.detail,
      });
      await fail(actor, "panic", `The guest's kernel panicked: ${panicLine(event.detail)}`);
      return;
    case "shutdown":
      await becomeStopped(actor, false);
      return;
    case "reset":
      await rebooted(actor);
      return;
    case "io-error":
      await pausedByFullDisk(actor);
      return;
  }
}

/** What the kernel says it died of; the rest of its console is in the log. */
function panicLine(console: string): string {
  const said = /Kernel panic - not syncing: ([^\n\r]*)/.exec(console)?.[1];
  return (said ?? console).trim().slice(0, 200);
}

/** A reboot is a cold start, a new generation, through the same gate; a loop of them is bounded. */
async function rebooted(actor: Actor): Promise<void> {
  const nowMs = actor.parts.clock.nowMs();
  const recent = actor.agent.resetsAtMs.filter((at) => nowMs - at < engineLimits.resetWindowMs);
  const resetsAtMs = [...recent, nowMs];
  if (resetsAtMs.length > engineLimits.resetsMax) {
    await fail(
      actor,
      "reset_loop",
      `The guest rebooted ${resetsAtMs.length} times within ${engineLimits.resetWindowMs / 1000} s`,
    );
    return;
  }
  await actor.save({ state: "stopped", lease: null, disk: actor.newestLayers(), resetsAtMs });
  await endMachine(actor, "the guest rebooted");
  await startCold(actor, "stopped");
}

/** The VM waits for room; it goes on by itself when there is some. */
async function pausedByFullDisk(actor: Actor): Promise<void> {
  // A try to go on that fails tells of it again; one loop of tries is enough.
  if (actor.agent.paused !== null) return;
  await actor.save({ paused: "disk full" });
  void retryPaused(actor);
}

/**
 * Lets the VM run until it runs on, and then until the guest answers: only then its clock is right and
 * what a sleep has frozen meanwhile is thawed.
 */
async function retryPaused(actor: Actor): Promise<void> {
  const { clock } = actor.parts;
  const { machine } = actor;
  for (let answersLeft: number = engineLimits.pausedAnswersMax; answersLeft > 0;) {
    await clock.wait(engineLimits.pausedRetryMs);
    const done = await actor.lane.exclusive(async () => {
      if (actor.machine !== machine || machine === null) return true;
      try {
        await machine.run();
        if (!(await machine.isRunning())) return false;
        if (actor.agent.paused !== null) await actor.save({ paused: null });
        answersLeft--;
        return await goOn(actor, machine);
      } catch {
        return false;
      }
    });
    if (done) return;
  }
}
