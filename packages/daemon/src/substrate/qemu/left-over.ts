/**
 * What a daemon that died left behind: processes without an owner, folders, files and control groups.
 *
 * - I1 Only this home's are touched; a process is signalled as the very one that was found.
 * - I2 What belongs to a machine that is kept stays, whether its process lives or not: its owner ends it.
 */
import { readdir, rm } from "node:fs/promises";
import { machineIdSchema, type MachineId } from "@perdure/protocol";
import { zeroFilePath, type StartTools } from "./machine-start.ts";
import { killAndWait } from "./process.ts";
import { RunFolder } from "./run-folder.ts";
import { findProcesses } from "./sweep.ts";

/** Returns how many processes were ended. */
export async function endLeftOvers(
  tools: StartTools,
  kept: ReadonlySet<MachineId>,
): Promise<number> {
  const found = await findProcesses(tools.homeId, tools.isolation.range);
  const unwanted = found.filter(({ id }) => !kept.has(id));
  await Promise.all(unwanted.map(({ identity }) => killAndWait(identity, tools.clock)));
  await removeFiles(tools, kept);
  return unwanted.length;
}

/** What is left of a machine whose process is gone. Idempotent. */
export async function removeMachineFiles(tools: StartTools, id: MachineId): Promise<void> {
  const folder = new RunFolder(tools.runDir, id);
  await tools.grants.closed(await folder.readLayers());
  await folder.remove();
  await rm(zeroFilePath(tools, id), { force: true });
  await tools.cgroups.remove(id);
}

async function removeFiles(tools: StartTools, kept: ReadonlySet<MachineId>): Promise<void> {
  const zeroFiles = (await readdir(tools.dataDir)).map((name) => name.replace(/^zero-/, ""));
  const names = [...(await readdir(tools.runDir)), ...zeroFiles, ...(await tools.cgroups.list())];
  for (const id of unkept(names, kept)) await removeMachineFiles(tools, id);
}

/** Those of `names` that are ids of machines that nobody keeps. */
function unkept(names: readonly string[], kept: ReadonlySet<MachineId>): MachineId[] {
  return names.flatMap((name) => {
    const id = machineIdSchema.safeParse(name);
    return id.success && !kept.has(id.data) ? [id.data] : [];
  });
}
