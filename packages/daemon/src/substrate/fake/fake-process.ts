/**
 * One fake VM process. It belongs to the host, not to a daemon: it goes on when the daemon that started
 * it is gone, and another one can adopt it.
 */
import { PerdureError } from "@perdure/protocol";
import type {
  DiskChain,
  MachineEvent,
  MachineRecord,
  MachineSpec,
} from "../../core/ports/substrate.ts";
import { decodeDevices, encodeDevices } from "./device-state.ts";
import { FakeDisk } from "./fake-disk.ts";
import type { FakeFiles } from "./fake-file.ts";
import { FakeMemory } from "./fake-memory.ts";
import type { GuestMaker, GuestModel } from "./guest-model.ts";

/** What a process needs of the host that it runs on. */
export interface ProcessHost {
  readonly files: FakeFiles;
  readonly makeGuest: GuestMaker;
  readonly roomForDisk: boolean;
  onCut: ((process: FakeProcess, devices: Uint8Array) => void) | null;
  onKill: ((process: FakeProcess) => void) | null;
  claimDisk(process: FakeProcess, layers: readonly string[]): void;
  seal(path: string): void;
  forget(process: FakeProcess): void;
  violate(what: string): void;
}

export interface ProcessStart {
  readonly record: MachineRecord;
  readonly spec: MachineSpec;
  readonly base: Uint8Array | null;
  /** Set where RAM is shared with this file, which becomes a template's base. */
  readonly basePath: string | null;
}

export class FakeProcess {
  readonly record: MachineRecord;
  readonly spec: MachineSpec;
  readonly memory: FakeMemory;
  readonly listeners = new Set<(event: MachineEvent) => void>();
  /** The guest, once it was booted or loaded. */
  readonly loaded: Promise<GuestModel>;
  readonly #host: ProcessHost;
  readonly #basePath: string | null;
  readonly #happened: MachineEvent[] = [];
  #stage: "waiting" | "ready" | "ran" = "waiting";
  #running = false;
  #waitsForRoom: MachineEvent | null = null;
  #cuts = 0;
  #disk: FakeDisk | null = null;
  #diskBytes: number;
  #guest: GuestModel | null = null;
  #loaded: (guest: GuestModel) => void = () => undefined;

  constructor(host: ProcessHost, { record, spec, base, basePath }: ProcessStart) {
    this.record = record;
    this.spec = spec;
    this.#diskBytes = spec.shape.diskBytes;
    this.memory = new FakeMemory(spec.shape.memoryBytes, base);
    this.#host = host;
    this.#basePath = basePath;
    this.loaded = new Promise((resolve) => (this.#loaded = resolve));
  }

  get gone(): boolean {
    return this.#happened.some(({ kind }) => kind === "exited");
  }

  get running(): boolean {
    return this.#running;
  }

  get disk(): FakeDisk | null {
    return this.#disk;
  }

  get guest(): GuestModel | null {
    return this.#guest;
  }

  /** What a listener that comes late is told. */
  get happened(): readonly MachineEvent[] {
    return [...this.#happened, ...(this.#waitsForRoom === null ? [] : [this.#waitsForRoom])];
  }

  attachDisk(chain: DiskChain): void {
    this.#assertStage("ran", "attach a disk");
    const disk = new FakeDisk(this.#host.files, chain);
    this.#host.claimDisk(this, disk.layers);
    this.#disk = disk;
  }

  addLayer(path: string): void {
    this.#assertHalted("switch the disk layer of");
    if (this.#disk === null) throw new PerdureError("machine_failed", "The machine has no disk");
    const { top } = this.#disk;
    this.#host.claimDisk(this, [path]);
    this.#disk.addLayer(path);
    if (top !== null) this.#host.seal(top);
  }

  mergeLayers(below: string, top: string): void {
    if (this.#disk === null) throw new PerdureError("machine_failed", "The machine has no disk");
    this.#disk.mergeLayers(below, top);
  }

  growDisk(bytes: number): void {
    if (this.#disk === null || bytes < this.#diskBytes) {
      throw new PerdureError("machine_failed", `Cannot make a disk of ${bytes} bytes`);
    }
    this.#diskBytes = bytes;
    this.#guest?.diskGrown?.(bytes);
  }

  /** Starts the guest from the disk alone. */
  boot(): void {
    this.#load(null);
  }

  loadDevices(bytes: Uint8Array, advanceMs?: number): void {
    if (this.#stage !== "waiting") this.#assertStage(this.#stage, "load device state");
    const state = decodeDevices(bytes);
    if (state.memory !== this.memory.digest()) this.#host.violate("memory is not that of the cut");
    if (state.disk !== (this.#disk?.digest() ?? null)) {
      this.#host.violate("the disk is not that of the cut");
    }
    this.#cuts = state.cuts;
    this.#load(this.memory.state());
    if (advanceMs !== undefined) this.#guest?.advance?.(advanceMs);
  }

  saveDevices(): Uint8Array<ArrayBuffer> {
    this.#assertHalted("save the devices of");
    if (this.#stage === "waiting") throw new PerdureError("machine_failed", "A spare has no state");
    const devices = encodeDevices({
      format: "fake-devices",
      machine: this.record.id,
      cuts: ++this.#cuts,
      memory: this.memory.digest(),
      disk: this.#disk?.digest() ?? null,
    });
    this.#host.onCut?.(this, devices);
    return devices;
  }

  run(): void {
    if (this.#stage === "waiting") {
      throw new PerdureError("machine_failed", "Cannot run a spare that has no device state");
    }
    const [end] = this.#happened;
    if (end !== undefined) {
      throw new PerdureError("machine_failed", `Cannot run: the machine ended by ${end.kind}`);
    }
    this.#stage = "ran";
    if (this.#waitsForRoom !== null && !this.#host.roomForDisk) {
      this.#tell(this.#waitsForRoom);
      return;
    }
    this.#waitsForRoom = null;
    if (this.#running) return;
    this.#running = true;
    this.#guest?.resume();
  }

  pause(): void {
    this.assertAlive();
    this.#halt();
  }

  /** Anything that the guest, the host or a test does to the machine. */
  happen(kind: MachineEvent["kind"], detail = `injected ${kind}`): void {
    if (this.#happened.some((event) => event.kind === kind) || this.gone) return;
    this.#halt();
    const event = { kind, detail };
    if (kind === "io-error") this.#waitsForRoom = event;
    else {
      this.#waitsForRoom = null;
      this.#happened.push(event);
    }
    if (kind === "exited") {
      this.#guest?.end(detail);
      this.#host.forget(this);
    }
    this.#tell(event);
  }

  /** The daemon that has it ends it. */
  kill(): void {
    if (!this.gone) this.#host.onKill?.(this);
    this.happen("exited", "killed by the daemon");
  }

  assertAlive(): void {
    if (this.gone) throw new PerdureError("machine_failed", "The VM process is gone");
  }

  assertHalted(what: string): void {
    this.#assertHalted(what);
  }

  /** Before the first run only. */
  inject(index: number, bytes: Uint8Array): void {
    this.#assertStage("ran", "write memory");
    this.memory.put(index, bytes);
  }

  #load(saved: Uint8Array | null): void {
    const seat = {
      machine: this.record.id,
      disk: this.#disk,
      diskBytes: this.#diskBytes,
      happen: (kind: MachineEvent["kind"], detail?: string) => this.happen(kind, detail),
    };
    this.#guest = this.#host.makeGuest(seat, saved);
    this.#stage = "ready";
    this.#loaded(this.#guest);
  }

  #halt(): void {
    if (!this.#running) return;
    this.#running = false;
    if (this.#guest === null) return;
    this.#guest.halt();
    this.memory.keepState(this.#guest.save());
    if (this.#basePath !== null) this.#host.files.write(this.#basePath, this.memory.whole());
  }

  #tell(event: MachineEvent): void {
    for (const listener of [...this.listeners]) listener(event);
  }

  #assertHalted(what: string): void {
    this.assertAlive();
    if (this.#running) throw new PerdureError("machine_failed", `Cannot ${what} a running machine`);
  }

  #assertStage(tooLate: string, what: string): void {
    this.assertAlive();
    if (this.#stage === tooLate) {
      throw new PerdureError("machine_failed", `Too late to ${what}: the machine is ${tooLate}`);
    }
  }
}
