/**
 * Substrate on QEMU: whole VMs whose memory is a private mapping of a base, so that the pages that
 * differ from it are known to the host's kernel and can be read and written from outside.
 *
 * Neighbours: `command-line` (what a VM is), `machine-start` (a process), `machine` (its life),
 * `guest-memory` (pages), `disk` (layers), `spare-pool`, `sweep` (after a crash of the daemon).
 *
 * - I1 Nothing of another home, another user or another program is ever signalled or removed.
 * - I2 A machine's facts are those of the process that runs, also after the daemon was replaced.
 * - I3 State of one accelerator is never offered to a process of another: it is part of a spare's key.
 */
import { mkdir, readdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import {
  digestOf,
  machineIdSchema,
  PerdureError,
  type MachineId,
  type SubstrateFacts,
} from "@perdure/protocol";
import type { Clock } from "../../core/ports/clock.ts";
import type { Log } from "../../core/ports/log.ts";
import type {
  BootFiles,
  DiskChain,
  MachineRecord,
  MachineSpec,
  Substrate,
} from "../../core/ports/substrate.ts";
import { Acceleration, kvmGroups, kvmUnusable } from "./acceleration.ts";
import { adoptMachine } from "./adopt.ts";
import { openCgroups } from "./cgroup.ts";
import { CPU_MODEL, deviceDigest, MACHINE_TYPE } from "./command-line.ts";
import { Grants } from "./grant.ts";
import { MemoryWorkers } from "./guest-memory.ts";
import { reportHost, type HostReport } from "./host-report.ts";
import { ownUsers, sharedUser, type UidRange } from "./isolation.ts";
import { startMachine, type StartPlan, type StartTools } from "./machine-start.ts";
import type { QemuMachine } from "./machine.ts";
import { probe, probeBoot } from "./probe-boot.ts";
import { killAndWait } from "./process.ts";
import { findQemu } from "./qemu-binary.ts";
import { checkRunDir, RunFolder } from "./run-folder.ts";
import { SparePool } from "./spare-pool.ts";
import { findProcesses } from "./sweep.ts";

export interface QemuSubstrateOptions {
  /** Tells this data directory's processes from those of others: 1 to 32 of a–z, 0–9. */
  readonly homeId: string;
  /** Sockets of machines; a short path. Made, and opened for passing through. */
  readonly runDir: string;
  /** Files that machines of this home use. */
  readonly dataDir: string;
  /** Further folders of the daemon's that hold files of machines (images, templates). */
  readonly sharedDirs?: readonly string[];
  readonly accelerator: "auto" | "tcg" | "kvm";
  /** Users for VM processes. Left out: all run as the daemon's user, one tenant. Needs root. */
  readonly uidRange?: UidRange;
  /** Group of a tenant. Default: the first number of the range for all. */
  readonly tenantGid?: (tenant: string) => number;
  readonly clock: Clock;
  readonly log: Log;
}

export interface QemuSubstrate extends Substrate {
  /** Bases must be copies that the tenant's group may write: this QEMU cannot map them otherwise. */
  readonly needsWritableBase: boolean;
  describeHost(): Promise<HostReport>;
  adopt(record: MachineRecord, spec: MachineSpec): Promise<QemuMachine | null>;
}

/** @throws `host_not_ready` */
export async function openQemuSubstrate(options: QemuSubstrateOptions): Promise<QemuSubstrate> {
  const { homeId, runDir, dataDir, clock, log, uidRange } = options;
  if (!/^[a-z0-9]{1,32}$/.test(homeId)) {
    throw new PerdureError("internal", `"${homeId}" cannot name a home: 1 to 32 of a-z and 0-9`);
  }
  checkRunDir(runDir);
  const qemu = await findQemu();
  const isolation =
    uidRange === undefined
      ? sharedUser()
      : ownUsers(uidRange, options.tenantGid ?? (() => uidRange.first));
  const grants = new Grants(
    [runDir, dataDir, ...(options.sharedDirs ?? [])],
    uidRange !== undefined,
  );
  await mkdir(runDir, { recursive: true });
  await mkdir(dataDir, { recursive: true });
  await grants.passable(runDir);
  await grants.passable(dataDir);
  const groups = await kvmGroups();
  const tools: StartTools = {
    homeId,
    runDir,
    dataDir,
    qemu,
    isolation,
    cgroups: await openCgroups(homeId),
    grants,
    workers: new MemoryWorkers(),
    clock,
    kvmGroups: groups ?? [],
  };
  const tscKhz = await hostTscKhz();

  const acceleration = new Acceleration({
    wanted: options.accelerator,
    qemuVersion: qemu.version,
    cachePath: join(dataDir, "accelerator.json"),
    log,
    async unusable() {
      if (uidRange !== undefined && groups === null) {
        return "/dev/kvm is root's alone and VM processes are not root: give it to a group, mode 0660";
      }
      return kvmUnusable();
    },
    probe: (boot) =>
      probe(
        () =>
          startMachine(tools, {
            tenant: "probe",
            facts: factsOf({ shape: probeShape, boot }, "kvm"),
            boot: kernelOf(probeBoot(boot)),
            memory: { kind: "zero" },
            incoming: false,
          }),
        clock,
      ),
  });

  function factsOf(
    spec: Pick<MachineSpec, "shape" | "boot">,
    accelerator: "tcg" | "kvm",
  ): SubstrateFacts {
    return {
      vmm: "qemu",
      vmmVersion: qemu.version,
      machineType: MACHINE_TYPE,
      deviceDigest: deviceDigest(spec.shape),
      shape: spec.shape,
      cpuModel: CPU_MODEL,
      accelerator,
      tscKhz,
      kernel: spec.boot.kernelDigest,
      initramfs: spec.boot.initramfsDigest,
      guestProtocol: spec.boot.guestProtocol,
    };
  }

  async function facts(spec: Pick<MachineSpec, "shape" | "boot">): Promise<SubstrateFacts> {
    return factsOf(spec, (await acceleration.choose(spec.boot)).accelerator);
  }

  async function plan(
    spec: Omit<MachineSpec, "base">,
    memory: StartPlan["memory"],
    incoming: boolean,
  ): Promise<QemuMachine> {
    return startMachine(tools, {
      tenant: spec.tenant,
      facts: await facts(spec),
      boot: kernelOf(spec.boot),
      memory,
      incoming,
    });
  }

  async function withDisk(machine: QemuMachine, disk: DiskChain): Promise<QemuMachine> {
    try {
      await machine.attachDisk(disk);
      return machine;
    } catch (error) {
      await machine.kill();
      throw PerdureError.from(error, "machine_start_failed");
    }
  }

  const spares = new SparePool<MachineSpec>({
    start: (spec) => plan(spec, spec.base, true),
    failed: (error) =>
      log("warn", "A spare VM could not be started", { message: (error as Error).message }),
  });

  return {
    needsWritableBase: qemu.needsWritableBase,
    facts,
    describeHost: () => reportHost(qemu, isolation, tools.cgroups, acceleration.last),

    keepSpares: (spec, count) => spares.keep(spareKey(spec), spec, count),

    async takeSpare(spec) {
      // One that died a moment ago may still stand on the shelf.
      for (;;) {
        const machine = spares.take(spareKey(spec));
        if (machine === null) return plan(spec, spec.base, true);
        const ready = await machine.isRunning().then(
          () => true,
          () => false,
        );
        if (ready) return machine;
        await machine.kill();
      }
    },

    bootCold: async (spec, disk) => withDisk(await plan(spec, spec.base, false), disk),

    bootTemplate: async (spec, disk, path) =>
      withDisk(await plan(spec, { kind: "new-template", path }, false), disk),

    adopt: (record) => adoptMachine(tools, record),

    async sweep(keep) {
      const kept = new Set<MachineId>(keep);
      const found = await findProcesses(homeId, isolation.range);
      const alive = new Set(found.map(({ id }) => id).filter((id) => kept.has(id)));
      const ended = found.filter(({ id }) => !kept.has(id));
      await Promise.all(ended.map(({ identity }) => killAndWait(identity, clock)));
      await removeLeftOvers(tools, alive, kept);
      return ended.length;
    },

    async close() {
      await spares.close();
      await tools.workers.close();
    },
  };
}

/** Small, and within the bounds of agents. */
const probeShape = { memoryBytes: 256 * 1024 * 1024, cpus: 1, diskBytes: 2 * 1024 ** 3 };

function kernelOf(boot: BootFiles): StartPlan["boot"] {
  const { kernelPath, initramfsPath, commandLine } = boot;
  return { kind: "kernel", kernelPath, initramfsPath, commandLine };
}

/** Which specs one spare serves. The accelerator is settled by the kernel. */
function spareKey({ tenant, shape, base, boot }: MachineSpec): string {
  return digestOf({
    tenant,
    shape,
    base: base.kind === "zero" ? "zero" : { digest: base.digest, path: base.path },
    kernel: boot.kernelDigest,
    initramfs: boot.initramfsDigest,
  });
}

/** Folders, files and groups of machines that are neither alive nor kept. */
async function removeLeftOvers(
  tools: StartTools,
  alive: ReadonlySet<MachineId>,
  kept: ReadonlySet<MachineId>,
): Promise<void> {
  const left = (name: string): MachineId | null => {
    const parsed = machineIdSchema.safeParse(name);
    return parsed.success && !alive.has(parsed.data) && !kept.has(parsed.data) ? parsed.data : null;
  };
  for (const name of await readdir(tools.runDir)) {
    const id = left(name);
    if (id !== null) await new RunFolder(tools.runDir, id).remove();
  }
  for (const name of await readdir(tools.dataDir)) {
    if (name.startsWith("zero-") && left(name.slice("zero-".length)) !== null) {
      await rm(join(tools.dataDir, name), { force: true });
    }
  }
  for (const name of await tools.cgroups.list()) {
    const id = left(name);
    if (id !== null) await tools.cgroups.remove(id);
  }
}

/** The kernel's estimate of the time stamp counter, to 5 kHz: twice it is printed as "bogomips". */
async function hostTscKhz(): Promise<number> {
  const text = await readFile("/proc/cpuinfo", "latin1").catch(() => "");
  const bogomips = /^bogomips\s*: ([\d.]+)$/m.exec(text)?.[1];
  return bogomips === undefined ? 0 : Math.round(Number(bogomips) * 500);
}
