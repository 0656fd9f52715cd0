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
      await fail(actor, "panic", `The guest's kernel panicked: ${event.detail}`);
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

async function retryPaused(actor: Actor): Promise<void> {
  const { clock } = actor.parts;
  const { machine } = actor;
  for (;;) {
    await clock.wait(engineLimits.pausedRetryMs);
    const done = await actor.lane.exclusive(async () => {
      if (actor.machine !== machine || machine === null) return true;
      try {
        await machine.run();
        if (!(await machine.isRunning())) return false;
        await actor.save({ paused: null });
        await goOn(actor, machine);
        return true;
      } catch {
        return false;
      }
    });
    if (done) return;
  }
}
