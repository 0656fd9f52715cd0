/**
 * Stop: power off and keep the disk. The workload is asked to end, file systems are flushed and
 * remounted read-only inside, then the disk becomes a checkpoint of its own (without memory).
 */
import { PerdureError } from "@perdure/protocol";
import type { Actor } from "./actor.ts";
import { collectOld } from "./collect.ts";
import { compactDisk } from "./compact.ts";
import { endMachine, whyFailed } from "./fail.ts";
import { engineLimits } from "./limit.ts";
import type { Clock } from "./ports/clock.ts";
import type { Machine } from "./ports/substrate.ts";
import { diskDraft, rowOf, storeStep } from "./publish.ts";
import { connectAgain } from "./reconnect.ts";

/** Powers an awake agent off; where that fails it stays awake. Holds the lane. */
export async function stop(actor: Actor): Promise<void> {
  actor.assertNotPaused();
  const machine = actor.requireMachine();
  const link = actor.link ?? (await connectAgain(actor));
  await compactDisk(actor);
  await actor.save({ state: "stopping" });
  actor.unwatch();
  try {
    await actor.step("stop.begun");
    const off = poweredOff(machine, actor.parts.clock);
    // The VM may be off before the answer to the request has come through.
    await Promise.race([off, link.shutdown(engineLimits.shutdownMs).then(() => off)]);
  } catch (error) {
    const why = await whyFailed(actor, machine, "its stop", error);
    await actor.save({ state: "awake" });
    actor.watch();
    throw why;
  }
  await becomeStopped(actor, true);
}

/**
 * The guest has powered off: the agent is stopped from here on; then its machine ends, and its newest
 * disk is published as the head, without memory. A disk that cannot be published now is kept as it is.
 */
export async function becomeStopped(actor: Actor, clean: boolean): Promise<void> {
  const { parts } = actor;
  const layers = actor.newestLayers();
  await actor.save({ state: "stopped", lease: null, paused: null, disk: layers });
  await actor.step("stop.powered-off");
  await endMachine(actor, "stop");
  await actor.step("stop.machine-gone");
  try {
    const draft = await diskDraft(actor, "stop", null, clean);
    const published = await parts.checkpoints.write(draft, null, storeStep(actor, "stop"));
    const checkpoint = rowOf(draft, published, null);
    await actor.save({ head: { checkpoint: checkpoint.id, continued: false } }, [
      { kind: "insert-checkpoint", checkpoint },
    ]);
  } catch (error) {
    parts.log("warn", "The disk of a stopped agent could not be published", {
      agent: actor.id,
      message: PerdureError.from(error).message,
    });
  }
  await actor.step("stop.published");
  await collectOld(actor);
}

/** Resolves when the guest has powered off. @throws `deadline_exceeded`, or how else the VM ended */
function poweredOff(machine: Machine, clock: Clock): Promise<void> {
  const late = new AbortController();
  const off = new Promise<void>((resolve, reject) => {
    // What happened already is told within this call.
    const unwatch = machine.onEvent((event) => {
      if (event.kind === "io-error") return;
      late.abort();
      if (event.kind === "shutdown") resolve();
      else
        reject(new PerdureError("machine_failed", `The VM ended (${event.kind}): ${event.detail}`));
    });
    clock.wait(engineLimits.powerOffMs, late.signal).then(
      () => {
        unwatch();
        const seconds = engineLimits.powerOffMs / 1000;
        reject(
          new PerdureError("deadline_exceeded", `The guest did not power off within ${seconds} s`),
        );
      },
      () => unwatch(),
    );
  });
  // If the guest refuses to power off, nobody is there for a late rejection.
  off.catch(() => undefined);
  return off;
}
