/**
 * Starts a VM process and hands it over as a machine: waiting for state, or paused before its first
 * instruction.
 *
 * - I1 A start that fails leaves nothing behind: no process, folder, control group, uid or file.
 * - I2 A machine is handed over only when all of its memory was found where checkpoints look for it.
 * - I3 A template's RAM blocks are exactly those that a checkpoint holds or a start makes anew.
 */
import { chmod, open, realpath, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { makeId, PerdureError, type MachineId, type SubstrateFacts } from "@perdure/protocol";
import { atOnce } from "../../core/at-once.ts";
import type { Clock } from "../../core/ports/clock.ts";
import type { MemoryBase } from "../../core/ports/substrate.ts";
import type { Cgroups } from "./cgroup.ts";
import { argv, launchArguments, type LaunchPlaces } from "./command-line.ts";
import type { Grants } from "./grant.ts";
import type { MemoryWorkers } from "./guest-memory.ts";
import type { Credentials, Isolation } from "./isolation.ts";
import type { Launcher, LaunchedProcess } from "./launch.ts";
import { qemuLimits } from "./limit.ts";
import { QemuMachine } from "./machine.ts";
import { readMemoryAreas } from "./memory-area.ts";
import { hostBootId, isAlive, killAndWait } from "./process.ts";
import type { QemuBinary } from "./qemu-binary.ts";
import { QmpClient } from "./qmp.ts";
import { assertKnownRamBlocks } from "./ram-block.ts";
import { noSpace } from "./no-space.ts";
import { RunFolder } from "./run-folder.ts";
import { readStub } from "./stub-kernel.ts";

/** What starting needs from this daemon and host. */
export interface StartTools {
  readonly homeId: string;
  readonly runDir: string;
  readonly dataDir: string;
  readonly qemu: QemuBinary;
  readonly isolation: Isolation;
  readonly cgroups: Cgroups;
  readonly grants: Grants;
  readonly workers: MemoryWorkers;
  readonly launcher: Launcher;
  readonly clock: Clock;
  /** Groups that let a process open /dev/kvm; null where none would. */
  readonly kvmGroups: readonly number[] | null;
}

export interface StartPlan {
  readonly tenant: string;
  readonly facts: SubstrateFacts;
  readonly boot: LaunchPlaces["boot"];
  /** `template`: a file that does not exist yet, shared, becomes a base. */
  readonly memory: MemoryBase | { readonly kind: "new-template"; readonly path: string };
  /** Waits for state (a spare), or starts from reset. */
  readonly incoming: boolean;
  /** Gets the machine's id before there is a process; loses it again if the start fails. */
  readonly started: Set<MachineId>;
}

interface PreparedFiles {
  readonly credentials: Credentials;
  readonly giveBack: () => void;
  readonly memory: PreparedMemory;
  readonly boot: LaunchPlaces["boot"];
}

interface PreparedMemory {
  readonly path: string;
  readonly access: LaunchPlaces["memoryAccess"];
  /** Once QEMU has it open. */
  started(): Promise<void>;
  /** When the process is gone. */
  ended(): Promise<void>;
}

/** `perdure-<home>-<machine>`: the token by which a process is known as one of this home. */
export function processName(homeId: string, id: MachineId): string {
  return `perdure-${homeId}-${id}`;
}

/** A machine's file of holes; it has a name only until QEMU has opened it. */
export function zeroFilePath(tools: Pick<StartTools, "dataDir">, id: MachineId): string {
  return join(tools.dataDir, `zero-${id}`);
}

/** @throws `machine_start_failed`, `host_not_ready`, `disk_full` */
export async function startMachine(tools: StartTools, plan: StartPlan): Promise<QemuMachine> {
  const id = makeId("vm", tools.clock.nowMs(), tools.clock.randomBytes(10));
  plan.started.add(id);
  const undo: (() => Promise<void> | void)[] = [() => void plan.started.delete(id)];
  let complaint = (): string => "";
  try {
    return await start();
  } catch (error) {
    const said = complaint();
    for (const step of undo.reverse()) await step();
    if (error instanceof PerdureError && error.code === "host_not_ready") throw error;
    const full = noSpace(error, "start a VM");
    if (full !== null) throw full;
    const reason = PerdureError.from(error, "machine_start_failed").message;
    throw new PerdureError(
      "machine_start_failed",
      `Cannot start a VM: ${reason}${said === "" ? "" : ` (QEMU: ${said})`}`,
      {
        cause: error,
      },
    );
  }

  async function start(): Promise<QemuMachine> {
    const { clock } = tools;
    const { facts } = plan;
    const folder = new RunFolder(tools.runDir, id);
    const [{ credentials, giveBack, memory, boot }, cgroupFiles] = await atOnce([
      prepareFiles(folder),
      prepareCgroup(),
    ]);
    const accelerator = facts.accelerator === "kvm" ? "kvm" : "tcg";
    const process = await tools.launcher.launch({
      binary: tools.qemu.path,
      arguments: argv(
        launchArguments(facts.shape, accelerator, {
          name: processName(tools.homeId, id),
          memoryPath: memory.path,
          memoryAccess: memory.access,
          monitorPath: folder.monitorBirthPath,
          linkPath: folder.linkBirthPath,
          boot,
          incoming: plan.incoming,
        }),
      ),
      user: tools.isolation.range === null ? null : credentials,
      groups: accelerator === "kvm" ? (tools.kvmGroups ?? []) : [],
      cgroupFiles,
    });
    complaint = () => process.complaint();
    undo.push(() => killAndWait(process.identity, clock).finally(() => process.release()));
    const qmp = await connectMonitor(folder, process, clock);
    undo.push(() => qmp.close());
    const sharing = memory.access === "shared" ? "shared" : "private";
    const { pid } = process.identity;
    const [areas] = await atOnce([
      readMemoryAreas(pid, memory.path, facts.shape.memoryBytes, sharing),
      folder.writeNote({ facts, basePath: memory.path, sharing, credentials }),
      rm(stubPath(folder), { force: true }),
      memory.started(),
    ]);
    if (sharing === "shared") await assertKnownRamBlocks(qmp);
    return new QemuMachine({
      record: {
        id,
        ...process.identity,
        hostBootId: hostBootId(),
        runDir: folder.path,
        uid: credentials.uid,
      },
      facts,
      folder,
      qmp,
      areas,
      credentials,
      grants: tools.grants,
      workers: tools.workers,
      clock,
      stage: plan.incoming ? "waiting" : "ready",
      exited: process.exited.then((how) => `${how} ${process.complaint()}`.trim()),
      release: () => process.release(),
      async cleanUp() {
        await memory.ended();
        await tools.cgroups.remove(id);
        giveBack();
      },
    });
  }

  async function prepareFiles(folder: RunFolder): Promise<PreparedFiles> {
    const { credentials, giveBack } = await tools.isolation.take(plan.tenant);
    undo.push(() => giveBack());
    undo.push(() => folder.remove());
    await folder.make(credentials, tools.isolation.range !== null);
    const memory = await prepareMemory(tools, plan, id, credentials);
    undo.push(() => memory.ended());
    return { credentials, giveBack, memory, boot: await prepareBoot(tools, plan, folder) };
  }

  async function prepareCgroup(): Promise<string[]> {
    undo.push(() => tools.cgroups.remove(id));
    return tools.cgroups.make(id, plan.facts.shape);
  }
}

/** A stub has a name only until QEMU has read it: the run folder may be memory of the host. */
function stubPath(folder: RunFolder): string {
  return join(folder.path, "kernel");
}

/** What the process boots, in files that it may read. A spare has a stub of its kernel. */
async function prepareBoot(
  tools: StartTools,
  plan: StartPlan,
  folder: RunFolder,
): Promise<LaunchPlaces["boot"]> {
  const { boot } = plan;
  if (boot.kind !== "kernel") return boot;
  const stub = plan.incoming ? await readStub(boot.kernelPath) : null;
  if (stub !== null) {
    const kernelPath = stubPath(folder);
    await writeFile(kernelPath, stub, { flag: "wx" });
    // Whatever the daemon's umask; only this process passes through the folder.
    await chmod(kernelPath, 0o444);
    return { ...boot, kernelPath, initramfsPath: null };
  }
  await tools.grants.readable(boot.kernelPath);
  if (boot.initramfsPath !== null) await tools.grants.readable(boot.initramfsPath);
  return boot;
}

/** Waits for the monitor's socket, takes it out of the process's reach, and connects. */
async function connectMonitor(
  folder: RunFolder,
  process: LaunchedProcess,
  clock: Clock,
): Promise<QmpClient> {
  const end = clock.monotonicMs() + qemuLimits.startMs;
  let kept = false;
  for (;;) {
    try {
      // The link's socket is made before the monitor's.
      if (!kept) await folder.keepSockets();
      kept = true;
      return await QmpClient.connect(folder.monitorPath, clock, qemuLimits.startMs);
    } catch (error) {
      if (!(await isAlive(process.identity))) {
        throw new PerdureError("machine_start_failed", `QEMU ended: ${await process.exited}`);
      }
      if (clock.monotonicMs() > end) throw error;
      await clock.wait(4);
    }
  }
}

async function prepareMemory(
  tools: StartTools,
  plan: StartPlan,
  id: MachineId,
  credentials: Credentials,
): Promise<PreparedMemory> {
  const { memory, facts } = plan;
  const nothing = (): Promise<void> => Promise.resolve();
  const writable = tools.qemu.needsWritableBase;
  switch (memory.kind) {
    case "zero": {
      const path = zeroFilePath(tools, id);
      await makeHoles(path, facts.shape.memoryBytes);
      await tools.grants.ownFile(path, credentials);
      const gone = (): Promise<void> => rm(path, { force: true });
      return { path: await realpath(path), access: "private-writable", started: gone, ended: gone };
    }
    case "new-template": {
      await makeHoles(memory.path, facts.shape.memoryBytes);
      await tools.grants.draft(memory.path, credentials);
      return {
        path: await realpath(memory.path),
        access: "shared",
        started: nothing,
        ended: () => tools.grants.takeBack(memory.path),
      };
    }
    case "template":
    case "own":
      await tools.grants.base(memory.path, credentials, writable);
      return {
        path: await realpath(memory.path),
        access: writable ? "private-writable" : "private-read-only",
        started: nothing,
        ended: nothing,
      };
  }
}

/** A file of zeroes that takes no room. */
async function makeHoles(path: string, bytes: number): Promise<void> {
  const file = await open(path, "wx", 0o600);
  try {
    await file.truncate(bytes);
  } finally {
    await file.close();
  }
}
