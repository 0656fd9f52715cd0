/**
 * Takes over a machine that an earlier daemon started.
 *
 * - I1 Adopted is only the very process of the record: same boot of the host, same pid, same start time,
 *   and the machine's name on its command line.
 * - I2 What it is comes from the note beside its sockets, which only the daemon can write.
 */
import type { MachineRecord } from "../../core/ports/substrate.ts";
import { qemuLimits } from "./limit.ts";
import type { StartTools } from "./machine-start.ts";
import { QemuMachine } from "./machine.ts";
import { readMemoryAreas } from "./memory-area.ts";
import { hostBootId } from "./process.ts";
import { QmpClient } from "./qmp.ts";
import { RunFolder } from "./run-folder.ts";
import { recognise } from "./sweep.ts";

/** @throws `machine_failed` where the process lives but does not answer */
export async function adoptMachine(
  tools: StartTools,
  record: MachineRecord,
): Promise<QemuMachine | null> {
  if (record.hostBootId !== hostBootId()) return null;
  const found = await recognise(record.pid, tools.homeId, tools.isolation.range);
  if (found?.id !== record.id || found.identity.startTicks !== record.startTicks) return null;
  const folder = new RunFolder(tools.runDir, record.id);
  const note = await folder.readNote();
  if (note === null) return null;
  const { facts, credentials } = note;
  const areas = await readMemoryAreas(
    record.pid,
    note.basePath,
    facts.shape.memoryBytes,
    note.sharing,
  );
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
  await machine.catchUp();
  return machine;
}
