/**
 * Takes over a machine that an earlier daemon started.
 *
 * - I1 Adopted is only the very process of the record: same boot of the host, same pid, same start time,
 *   and the machine's name on its command line. What is left of one that is gone is removed.
 * - I2 What it is comes from the note beside its sockets, which only the daemon can write.
 */
import { PerdureError } from "@perdure/protocol";
import type { MachineRecord, MachineSpec } from "../../core/ports/substrate.ts";
import { qemuLimits } from "./limit.ts";
import type { StartTools } from "./machine-start.ts";
import { QemuMachine } from "./machine.ts";
import { readMemoryAreas } from "./memory-area.ts";
import { hostBootId, killAndWait, processError } from "./process.ts";
import { QmpClient } from "./qmp.ts";
import { RunFolder } from "./run-folder.ts";
import { findProcesses, recognise } from "./sweep.ts";
import { removeMachineFiles } from "./left-over.ts";

/** Whether the process of this record runs, and is that very one. */
export async function isMachine(tools: StartTools, record: MachineRecord): Promise<boolean> {
  const found = await recognise(record.pid, tools.homeId, tools.isolation.range);
  const same = found?.id === record.id && found.identity.startTicks === record.startTicks;
  return same && record.hostBootId === hostBootId();
}

export async function endMachine(tools: StartTools, record: MachineRecord): Promise<void> {
  if (await isMachine(tools, record)) await killAndWait(record, tools.clock);
  await removeMachineFiles(tools, record.id);
}

/** @throws `machine_failed` where the process lives but does not answer */
export async function adoptMachine(
  tools: StartTools,
  record: MachineRecord,
  spec: MachineSpec,
): Promise<QemuMachine | null> {
  if (!(await isMachine(tools, record))) {
    const alive = await findProcesses(tools.homeId, tools.isolation.range);
    if (!alive.some(({ id }) => id === record.id)) await removeMachineFiles(tools, record.id);
    return null;
  }
  const folder = new RunFolder(tools.runDir, record.id);
  const note = await folder.readNote();
  // It had not been handed over yet: nobody has a lease on it, and `sweep` ends it.
  if (note === null) return null;
  const { facts, credentials } = note;
  if (
    facts.shape.memoryBytes !== spec.shape.memoryBytes ||
    facts.shape.cpus !== spec.shape.cpus ||
    // It may have grown since.
    facts.shape.diskBytes > spec.shape.diskBytes ||
    facts.kernel !== spec.boot.kernelDigest ||
    facts.initramfs !== spec.boot.initramfsDigest
  ) {
    throw new PerdureError("machine_failed", `Machine ${record.id} runs another spec`);
  }
  const areas = await readMemoryAreas(
    record.pid,
    note.basePath,
    facts.shape.memoryBytes,
    note.sharing,
  ).catch(async (error: unknown) => {
    throw await processError(record, "take over the VM process", error);
  });
  const qmp = await QmpClient.connect(folder.monitorPath, tools.clock, qemuLimits.commandMs);
  const machine = new QemuMachine({
    record: { ...record, runDir: folder.path },
    facts,
    folder,
    qmp,
    areas,
    credentials,
    grants: tools.grants,
    workers: tools.workers,
    clock: tools.clock,
    stage: "adopted",
    exited: null,
    release: () => undefined,
    cleanUp: () => tools.cgroups.remove(record.id),
  });
  try {
    await machine.catchUp();
  } catch (error) {
    // The monitor takes one connection: the next try needs it.
    await machine.release();
    throw error;
  }
  return machine;
}
