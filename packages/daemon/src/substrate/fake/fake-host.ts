/**
 * The host below the fake substrate: its processes and files. It outlives every daemon, as a real host
 * does, and it notices what no daemon may do: two machines that write one layer (I1), a sealed layer
 * that changes, a restore that does not fit its cut. What it noticed is in `violations`.
 */
import { createHash } from "node:crypto";
import {
  makeId,
  PerdureError,
  type Digest,
  type MachineId,
  type SubstrateFacts,
} from "@perdure/protocol";
import type { MachineSpec } from "../../core/ports/substrate.ts";
import type { FakeFiles } from "./fake-file.ts";
import { FakeProcess, type ProcessHost } from "./fake-process.ts";
import type { GuestMaker } from "./guest-model.ts";

export class FakeHost implements ProcessHost {
  readonly files: FakeFiles;
  readonly makeGuest: GuestMaker;
  readonly violations: string[] = [];
  /** False: a machine that waits for room does not go on. */
  roomForDisk = true;
  /** What this host offers that is not the default. */
  factsPatch: Partial<SubstrateFacts> = {};
  bootId = "fake-boot-1";
  /** Told of each capture of devices: that is the instant of a cut. */
  onCut: ((process: FakeProcess, devices: Uint8Array) => void) | null = null;
  /** Told right before a daemon ends a process that lives. */
  onKill: ((process: FakeProcess) => void) | null = null;
  /** Every process that was ever started here. */
  started = 0;
  readonly #processes = new Map<MachineId, FakeProcess>();
  readonly #sealed = new Map<string, string>();

  constructor(files: FakeFiles, makeGuest: GuestMaker) {
    this.files = files;
    this.makeGuest = makeGuest;
  }

  get processes(): readonly FakeProcess[] {
    return [...this.#processes.values()];
  }

  process(id: MachineId): FakeProcess | null {
    return this.#processes.get(id) ?? null;
  }

  byPid(pid: number): FakeProcess | null {
    return this.processes.find(({ record }) => record.pid === pid) ?? null;
  }

  byLink(linkPath: string): FakeProcess | null {
    return this.processes.find(({ record }) => linkPathOf(record.runDir) === linkPath) ?? null;
  }

  start(spec: MachineSpec, basePath: string | null): FakeProcess {
    const serial = ++this.started;
    const random = new Uint8Array(10);
    new DataView(random.buffer).setUint32(6, serial);
    const id = makeId("vm", 0, random);
    const record = {
      id,
      pid: 1000 + serial,
      startTicks: serial,
      hostBootId: this.bootId,
      runDir: `/fake/run/${id}`,
      uid: 0,
    };
    const process = new FakeProcess(this, { record, spec, base: this.#base(spec), basePath });
    this.#processes.set(id, process);
    return process;
  }

  forget(process: FakeProcess): void {
    this.#processes.delete(process.record.id);
  }

  /** The host goes down and comes up again: no process is left. */
  reboot(): void {
    for (const process of this.processes) process.happen("exited", "the host went down");
    this.bootId = `fake-boot-${this.started + 2}`;
  }

  /** `process` is about to write the last of `layers` and to read the others. */
  claimDisk(process: FakeProcess, layers: readonly string[]): void {
    for (const other of this.processes) {
      const top = other.disk?.top ?? null;
      if (other === process || top === null || !layers.includes(top)) continue;
      this.violate(`I1: ${process.record.id} opens layer ${top}, which ${other.record.id} writes`);
      throw new PerdureError("machine_failed", `Layer "${top}" is in use`);
    }
    for (const path of layers.slice(0, -1)) this.seal(path);
    const top = layers.at(-1);
    if (top !== undefined && this.#sealed.has(top)) {
      this.violate(`I2: ${process.record.id} would write the sealed layer ${top}`);
    }
  }

  /** From here on the layer does not change. */
  seal(path: string): void {
    const now = this.#digest(path);
    const then = this.#sealed.get(path);
    if (then !== undefined && then !== now) this.violate(`I2: sealed layer ${path} was changed`);
    this.#sealed.set(path, now);
  }

  violate(what: string): void {
    this.violations.push(what);
  }

  facts(spec: Omit<MachineSpec, "base">): SubstrateFacts {
    return {
      vmm: "fake",
      vmmVersion: "1.2.3",
      machineType: "fake-1.2",
      deviceDigest: sha256(Buffer.from(JSON.stringify([spec.shape.memoryBytes, spec.shape.cpus]))),
      shape: spec.shape,
      cpuModel: "fake-cpu",
      accelerator: "none",
      tscKhz: 2_000_000,
      movableClock: "tsc",
      kernel: spec.boot.kernelDigest,
      initramfs: spec.boot.initramfsDigest,
      guestProtocol: spec.boot.guestProtocol,
      ...this.factsPatch,
    };
  }

  #base({ base }: MachineSpec): Uint8Array | null {
    if (base.kind === "zero") return null;
    const bytes = this.files.read(base.path);
    if (bytes !== null) return bytes;
    throw new PerdureError("machine_start_failed", `Memory base "${base.path}" does not exist`);
  }

  #digest(path: string): string {
    return sha256(this.files.read(path) ?? new Uint8Array());
  }
}

export function linkPathOf(runDir: string): string {
  return `${runDir}/link`;
}

function sha256(bytes: Uint8Array): Digest {
  return createHash("sha256").update(bytes).digest("hex") as Digest;
}
