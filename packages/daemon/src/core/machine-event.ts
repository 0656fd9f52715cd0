/**
 * What a machine does on its own: it crashes, the guest reboots, powers off or panics, the host's disk
 * fills up. Each becomes a named state; nothing resets inside a VMM, and failure destroys no state (I10).
 */
import type { Actor } from "./actor.ts";
import { crashed, endMachine, fail } from "./fail.ts";
import { engineLimits } from "./limit.ts";
import type { MachineEvent } from "./ports/substrate.ts";
import { runAgain } from "./run-again.ts";
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
  await startCold(actor, { fallback: "stopped" });
}

/** The VM waits for room; it goes on by itself when there is some. */
async function pausedByFullDisk(actor: Actor): Promise<void> {
  if (actor.agent.paused === null) await actor.save({ paused: "disk full" });
  runAgain(actor);
}
