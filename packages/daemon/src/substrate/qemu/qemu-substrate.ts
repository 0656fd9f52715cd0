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
import { access, readFile } from "node:fs/promises";
import { join } from "node:path";
import { digestOf, PerdureError, type MachineId, type SubstrateFacts } from "@perdure/protocol";
import type { Log } from "../../core/ports/log.ts";
import type {
  BootFiles,
  DiskChain,
  MachineRecord,
  MachineSpec,
  Substrate,
} from "../../core/ports/substrate.ts";
import { Acceleration, kvmUnusable } from "./acceleration.ts";
import { adoptMachine, endMachine, isMachine } from "./adopt.ts";
import { BreakEven } from "./break-even.ts";
import { CPU_MODEL, deviceDigest, MACHINE_TYPE, type Accelerator } from "./command-line.ts";
import { reportHost, type HostReport } from "./host-report.ts";
import { clockArguments, movableClock } from "./kernel-clock.ts";
import { endLeftOvers } from "./left-over.ts";
import { startMachine, type StartPlan } from "./machine-start.ts";
import type { QemuMachine } from "./machine.ts";
import { probe, probeBoot } from "./probe-boot.ts";
import { openStartTools, type StartToolsOptions } from "./start-tools.ts";
import { SparePool } from "./spare-pool.ts";

export interface QemuSubstrateOptions extends StartToolsOptions {
  readonly accelerator: "auto" | "tcg" | "kvm";
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
  const { dataDir, clock, log } = options;
  const tools = await openStartTools(options);
  const { qemu, isolation } = tools;
  const tscKhz = await hostTscKhz();
  if (isolation.range === null) {
    log("warn", "VM processes run as the daemon's user: for one tenant only", {
      uid: process.getuid?.() ?? null,
    });
  }

  const acceleration = new Acceleration({
    wanted: options.accelerator,
    qemuVersion: qemu.version,
    cachePath: join(dataDir, "accelerator.json"),
    log,
    async unusable() {
      if (isolation.range !== null && tools.kvmGroups === null) {
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
            boot: kernelOf(probeBoot(boot), "kvm", tscKhz),
            memory: { kind: "zero" },
            incoming: false,
            started: unclaimed,
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
      ...withClock(movableClock(accelerator, tscKhz)),
      kernel: spec.boot.kernelDigest,
      initramfs: spec.boot.initramfsDigest,
      guestProtocol: spec.boot.guestProtocol,
    };
  }

  async function facts(spec: Pick<MachineSpec, "shape" | "boot">): Promise<SubstrateFacts> {
    return factsOf(spec, (await acceleration.choose(spec.boot)).accelerator);
  }

  /** Machines that this daemon started and nobody has taken yet: no left-overs. */
  const unclaimed = new Set<MachineId>();
  function claimed(machine: QemuMachine): QemuMachine {
    unclaimed.delete(machine.record.id);
    return machine;
  }

  async function plan(
    spec: Omit<MachineSpec, "base">,
    memory: StartPlan["memory"],
    incoming: boolean,
  ): Promise<QemuMachine> {
    const known = await facts(spec);
    const accelerator = known.accelerator === "kvm" ? "kvm" : "tcg";
    return startMachine(tools, {
      tenant: spec.tenant,
      facts: known,
      boot: kernelOf(spec.boot, accelerator, tscKhz),
      memory,
      incoming,
      started: unclaimed,
    });
  }

  async function withDisk(machine: QemuMachine, disk: DiskChain): Promise<QemuMachine> {
    try {
      await machine.attachDisk(disk);
      return claimed(machine);
    } catch (error) {
      await machine.kill();
      throw PerdureError.from(error, "machine_start_failed");
    }
  }

  const breakEven = new BreakEven();
  tools.workers.onInjected = (bytes, ms) => breakEven.injected(bytes, ms);

  async function startSpare(spec: MachineSpec): Promise<QemuMachine> {
    const startMs = clock.monotonicMs();
    const machine = await plan(spec, spec.base, true);
    breakEven.started(clock.monotonicMs() - startMs);
    return machine;
  }

  const spares = new SparePool<MachineSpec, QemuMachine>({
    start: startSpare,
    failed: (error) =>
      log("warn", "A spare VM could not be started", { message: (error as Error).message }),
  });

  return {
    needsWritableBase: qemu.needsWritableBase,
    facts,
    breakEvenBytes: () => breakEven.bytes,
    describeHost: () => reportHost(qemu, isolation, tools.cgroups, acceleration.last),

    keepSpares: (spec, count) => spares.keep(spareKey(spec), spec, count),

    async takeSpare(spec) {
      // One that died a moment ago, or whose sockets were removed, may still stand on the shelf.
      for (;;) {
        const machine = spares.take(spareKey(spec));
        if (machine === null) return claimed(await startSpare(spec));
        const ready = await Promise.all([machine.isRunning(), access(machine.linkPath)]).then(
          () => true,
          () => false,
        );
        if (ready) return claimed(machine);
        await machine.kill();
      }
    },

    bootCold: async (spec, disk) => withDisk(await plan(spec, spec.base, false), disk),

    bootTemplate: async (spec, disk, path) =>
      withDisk(await plan(spec, { kind: "new-template", path }, false), disk),

    isAlive: (record) => isMachine(tools, record),
    end: (record) => endMachine(tools, record),
    adopt: (record, spec) => adoptMachine(tools, record, spec),

    sweep: (keep) => endLeftOvers(tools, new Set<MachineId>([...keep, ...unclaimed])),

    async close() {
      await spares.close();
      await tools.workers.close();
      await tools.launcher.close();
      await tools.cgroups.close();
    },
  };
}

/** Small, and within the bounds of agents. */
const probeShape = { memoryBytes: 256 * 1024 * 1024, cpus: 1, diskBytes: 2 * 1024 ** 3 };

function kernelOf(
  { kernelPath, initramfsPath, commandLine }: BootFiles,
  accelerator: Accelerator,
  tscKhz: number,
): StartPlan["boot"] {
  const all = [commandLine, ...clockArguments(accelerator, tscKhz)];
  return { kind: "kernel", kernelPath, initramfsPath, commandLine: all.join(" ") };
}

function withClock(clock: SubstrateFacts["movableClock"]): Pick<SubstrateFacts, "movableClock"> {
  return clock === undefined ? {} : { movableClock: clock };
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

/** The kernel's estimate of the time stamp counter, to 5 kHz: twice it is printed as "bogomips". */
async function hostTscKhz(): Promise<number> {
  const text = await readFile("/proc/cpuinfo", "latin1").catch(() => "");
  const bogomips = /^bogomips\s*: ([\d.]+)$/m.exec(text)?.[1];
  return bogomips === undefined ? 0 : Math.round(Number(bogomips) * 500);
}
