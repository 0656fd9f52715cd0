/**
 * Stop: power off and keep the disk. The workload is asked to end, file systems are flushed and
 * remounted read-only inside, then the disk becomes a checkpoint of its own (without memory).
 */
import { PerdureError } from "@perdure/protocol";
import type { Actor } from "./actor.ts";
import { collectOld } from "./collect.ts";
import { engineLimits } from "./limit.ts";
import type { Machine } from "./ports/substrate.ts";
import { diskDraft, rowOf, storeStep } from "./publish.ts";

/** Powers an awake agent off. Holds the lane. */
export async function stop(actor: Actor): Promise<void> {
  const machine = actor.requireMachine();
  const link = actor.requireLink();
  actor.unwatch();
  await actor.save({ state: "stopping" });
  await actor.step("stop.begun");
  const off = poweredOff(machine, actor.parts.clock.wait(engineLimits.powerOffMs));
  // Awaited only once the guest has agreed; if it does not, nobody is there for a late rejection.
  off.catch(() => undefined);
  await link.shutdown(engineLimits.shutdownMs);
  await off;
  await actor.step("stop.powered-off");
  actor.detach("stop");
  await machine.kill();
  await actor.step("stop.machine-gone");
  await keepDisk(actor, true);
}

/** Publishes the newest disk as the head, without memory; the agent is stopped. The machine is gone. */
export async function keepDisk(actor: Actor, clean: boolean): Promise<void> {
  const { parts } = actor;
  const draft = await diskDraft(actor, "stop", null, clean);
  const published = await parts.checkpoints.write(draft, null, storeStep(actor, "stop"));
  const row = rowOf(draft, published, null);
  await actor.save(
    {
      state: "stopped",
      lease: null,
      paused: null,
      disk: draft.disk.layers,
      head: { checkpoint: row.id, continued: false },
    },
    [{ kind: "insert-checkpoint", checkpoint: row }],
  );
  await actor.step("stop.published");
  await collectOld(actor);
}

/** Resolves when the guest has powered off. @throws `deadline_exceeded` when `deadline` comes first */
function poweredOff(machine: Machine, deadline: Promise<void>): Promise<void> {
  return new Promise((resolve, reject) => {
    // What happened already is told within this call, before there is an `unwatch`.
    const unwatch = machine.onEvent((event) => {
      if (event.kind !== "io-error") resolve();
    });
    void deadline.then(() => {
      unwatch();
      reject(
        new PerdureError(
          "deadline_exceeded",
          `The guest did not power off within ${engineLimits.powerOffMs / 1000} s`,
        ),
      );
    });
  });
}
