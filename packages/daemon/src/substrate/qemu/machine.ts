/**
 * One VM process of one generation, spoken to through its monitor and through /proc.
 *
 * - I1 Order of a wake: disk and memory, then device state, then `run`. Each is refused once it would be
 *   too late, and `run` is refused on a spare without state: it would start from an empty BIOS.
 * - I2 After `kill` or `release` no method touches the process or its files.
 * - I3 `kill` works on a process that no longer answers: it needs the kernel only.
 */
import { PerdureError, type SubstrateFacts } from "@perdure/protocol";
import { atOnce } from "../../core/at-once.ts";
import type { Clock } from "../../core/ports/clock.ts";
import type { PageBatch } from "../../core/ports/page.ts";
import type {
  ClockAdvance,
  DiskChain,
  Machine,
  MachineCut,
  MachineEvent,
  MachineRecord,
} from "../../core/ports/substrate.ts";
import { ConsoleTail } from "./console-tail.ts";
import { advanceDeviceClock } from "./device-clock.ts";
import { expectDeviceState, loadDeviceState, saveDeviceState } from "./device-state.ts";
import { Disk } from "./disk.ts";
import type { Grants } from "./grant.ts";
import { readPages, writePages, type MemoryWorkers } from "./guest-memory.ts";
import type { Credentials } from "./isolation.ts";
import { MachineWatch } from "./machine-watch.ts";
import type { MemoryTask } from "./memory-worker.ts";
import { everyPage, mayReadMemory, readThroughMonitor } from "./monitor-memory.ts";
import { newPages, type MemoryArea } from "./page-run.ts";
import { isAlive, killAndWait, type ProcessIdentity } from "./process.ts";
import { processUsage, type ProcessUsage } from "./process-usage.ts";
import { isRecord, type QmpClient } from "./qmp.ts";
import type { RunFolder } from "./run-folder.ts";

/** Pages that a guest may write between the preparation of a cut and the cut without making it slower. */
const CUT_SLACK_PAGES = 1024;

/** What a machine is made of; whoever started or adopted the process puts it together. */
export interface MachineParts {
  readonly record: MachineRecord;
  readonly facts: SubstrateFacts;
  readonly folder: RunFolder;
  readonly qmp: QmpClient;
  readonly areas: readonly MemoryArea[];
  readonly credentials: Credentials;
  readonly grants: Grants;
  readonly workers: MemoryWorkers;
  readonly clock: Clock;
  /** `waiting`: a spare without state. `ready`: may run. `adopted`: found, may have run. */
  readonly stage: "waiting" | "ready" | "adopted";
  /** How the process ended, where this daemon is its parent. */
  readonly exited: Promise<string> | null;
  /** Stops following the process without ending it. */
  release(): void;
  /** Gives back what the process held outside of its folder, once it is gone. */
  cleanUp(): Promise<void>;
}

export class QemuMachine implements Machine {
  readonly record: MachineRecord;
  readonly facts: SubstrateFacts;
  readonly linkPath: string;
  readonly #parts: MachineParts;
  readonly #watch: MachineWatch;
  readonly #console: ConsoleTail;
  readonly #disk: Disk;
  readonly #process: ProcessIdentity;
  #stage: "waiting" | "ready" | "ran";
  #isPrepared = false;
  /** Private pages as they were found when a cut was prepared. */
  #knownPages = new Uint32Array(0);
  #killed: Promise<void> | null = null;
  #released = false;
  #sees: Promise<boolean> | null = null;

  constructor(parts: MachineParts) {
    this.#parts = parts;
    this.record = parts.record;
    this.facts = parts.facts;
    this.linkPath = parts.folder.linkPath;
    this.#process = { pid: parts.record.pid, startTicks: parts.record.startTicks };
    this.#stage = parts.stage === "adopted" ? "ran" : parts.stage;
    this.#console = new ConsoleTail(parts.qmp);
    this.#disk = new Disk(
      parts.qmp,
      parts.folder,
      parts.clock,
      parts.stage === "adopted" ? "unknown" : "empty",
    );
    this.#watch = new MachineWatch({
      qmp: parts.qmp,
      console: this.#console,
      gone: (monitorEnd) => this.#gone(monitorEnd),
      remember: (event) => parts.folder.writeEnd(event),
      recall: () => parts.folder.readEnd(),
    });
  }

  /** After adoption: learns of what happened while nobody watched. */
  async catchUp(): Promise<void> {
    await this.#watch.catchUp();
  }

  onEvent(listener: (event: MachineEvent) => void): () => void {
    return this.#watch.onEvent(listener);
  }

  async prepareWake(chain: DiskChain): Promise<void> {
    this.#assertNot("ran", "prepare a wake");
    const { grants, credentials, qmp, folder } = this.#parts;
    // The way to the layers is closed again by what this says, however the attempt ends.
    await folder.writeLayers(chain.layerPaths);
    await atOnce([
      grants.below(chain, credentials).then(() => this.#disk.openBelow(chain)),
      expectDeviceState(qmp, folder),
    ]);
    this.#isPrepared = true;
  }

  async attachDisk(chain: DiskChain): Promise<void> {
    this.#assertNot("ran", "attach a disk");
    const { grants, credentials } = this.#parts;
    if (!this.#isPrepared) await grants.below(chain, credentials);
    const top = chain.layerPaths.at(-1);
    if (top !== undefined) await grants.top(top, credentials);
    await this.#disk.attach(chain);
  }

  async injectMemory(pages: AsyncIterable<PageBatch>): Promise<void> {
    this.#assertNot("ran", "write memory");
    await writePages(this.#parts.workers, this.#memory(), pages);
  }

  async loadDevices(state: Uint8Array, advance?: ClockAdvance): Promise<void> {
    if (this.#stage !== "waiting") throw this.#tooLate("load device state");
    const wanted = advance === undefined ? state : this.#advanced(state, advance);
    const { qmp, folder, clock } = this.#parts;
    if (!this.#isPrepared) await expectDeviceState(qmp, folder);
    await loadDeviceState(qmp, folder, wanted, clock);
    this.#stage = "ready";
  }

  #advanced(state: Uint8Array, { ms, tscHz }: ClockAdvance): Uint8Array {
    const { movableClock, tscKhz } = this.facts;
    if (movableClock === undefined) {
      throw new PerdureError("machine_failed", "Cannot move the guest's clock: this VMM cannot");
    }
    return advanceDeviceClock(state, ms, tscHz ?? tscKhz * 1000);
  }

  async run(): Promise<void> {
    if (this.#stage === "waiting") {
      throw new PerdureError("machine_failed", "Cannot run a spare that has no device state");
    }
    const { end } = this.#watch;
    if (end !== undefined) {
      throw new PerdureError("machine_failed", `Cannot run: the machine ended by ${end.kind}`);
    }
    this.#stage = "ran";
    // A cut that failed has used none of what was prepared for it.
    this.#parts.workers.trim();
    this.#watch.goesOn();
    await this.#parts.qmp.execute("cont");
  }

  async pause(): Promise<void> {
    await this.#watch.stopping(() => this.#parts.qmp.execute("stop"));
  }

  async isRunning(): Promise<boolean> {
    const answer = await this.#parts.qmp.execute("query-status");
    return isRecord(answer) && answer.running === true;
  }

  async changedPages(): Promise<number> {
    return (await this.privatePages()).length;
  }

  async prepareCut(layerPath: string): Promise<void> {
    const { grants, credentials } = this.#parts;
    await atOnce([
      this.#prepareReading(),
      grants.top(layerPath, credentials).then(() => this.#disk.prepareLayer(layerPath)),
    ]);
  }

  /** The monitor takes its commands in this order, so none of them waits for the one before to be answered. */
  async cut(layerPath: string): Promise<MachineCut> {
    const stopped = this.pause();
    const [batches, devices] = await atOnce([
      stopped.then(() => this.#readAll()),
      this.saveDevices(),
      this.addLayer(layerPath),
    ]);
    return { batches, devices };
  }

  async #prepareReading(): Promise<void> {
    if (!(await this.#maySee())) return;
    const pages = await this.privatePages();
    await this.#parts.workers.prepare(pages.length + CUT_SLACK_PAGES);
    this.#knownPages = pages;
  }

  /** A page that was private once stays it: what was known before is read while the others are sought. */
  async #readAll(): Promise<PageBatch[]> {
    const known = this.#knownPages;
    this.#knownPages = new Uint32Array(0);
    const [pages, first] = await atOnce([
      this.privatePages(),
      Array.fromAsync(this.readPages(known)),
    ]);
    return [...first, ...(await Array.fromAsync(this.readPages(newPages(pages, known))))];
  }

  async privatePages(): Promise<Uint32Array<ArrayBuffer>> {
    try {
      return await this.#parts.workers.scan(this.#memory());
    } catch (error) {
      if (await this.#maySee()) throw error;
      return everyPage(this.facts.shape.memoryBytes);
    }
  }

  async *readPages(indexes: Uint32Array<ArrayBuffer>): AsyncIterable<PageBatch> {
    const { workers, qmp, folder } = this.#parts;
    if (await this.#maySee()) yield* readPages(workers, this.#memory(), indexes);
    else yield* readThroughMonitor(qmp, folder, this.facts.shape.memoryBytes, indexes);
  }

  async saveDevices(): Promise<Uint8Array<ArrayBuffer>> {
    if (this.#stage === "waiting") throw new PerdureError("machine_failed", "A spare has no state");
    return this.#watch.stopping(() => saveDeviceState(this.#parts.qmp, this.#parts.folder));
  }

  async addLayer(path: string): Promise<void> {
    const { grants, credentials } = this.#parts;
    const before = await this.#disk.topPath();
    if (this.#disk.prepared !== path) await grants.top(path, credentials);
    await this.#disk.addLayer(path);
    if (before !== null) await grants.sealed(before, credentials);
  }

  mergeLayers(below: string, top: string): Promise<void> {
    return this.#disk.mergeLayers(below, top);
  }

  growDisk(bytes: number): Promise<void> {
    return this.#disk.grow(bytes);
  }

  usage(): Promise<ProcessUsage> {
    return processUsage(this.#process);
  }

  async consoleTail(): Promise<string> {
    return this.#console.read();
  }

  kill(): Promise<void> {
    this.#killed ??= this.#kill().catch((error: unknown) => {
      // Worth another try later: the process may have left the host's kernel by then.
      this.#killed = null;
      throw PerdureError.from(error, "machine_failed");
    });
    return this.#killed;
  }

  release(): Promise<void> {
    this.#released = true;
    this.#watch.silence();
    this.#parts.qmp.close();
    this.#parts.release();
    return Promise.resolve();
  }

  async #kill(): Promise<void> {
    if (this.#released) return;
    this.#watch.silence();
    await this.#end();
    const { folder, grants } = this.#parts;
    await grants.closed(await folder.readLayers());
    await folder.remove();
    await this.#parts.cleanUp();
  }

  async #end(): Promise<void> {
    this.#parts.qmp.close();
    await killAndWait(this.#process, this.#parts.clock);
    this.#parts.release();
  }

  /** The monitor is gone: so is the process, within moments, or it is ended. */
  async #gone(monitorEnd: string): Promise<string> {
    const { clock, exited } = this.#parts;
    for (let tries = 0; tries < 50 && (await isAlive(this.#process)); tries++) await clock.wait(2);
    if (await isAlive(this.#process)) {
      // One that even this does not end is ended, or found, by whoever ends the machine.
      await killAndWait(this.#process, clock).catch(() => undefined);
      return monitorEnd;
    }
    return exited === null ? "the process is gone" : exited;
  }

  /** A daemon's own children it may look into; those of an earlier one perhaps not. */
  #maySee(): Promise<boolean> {
    this.#sees ??= mayReadMemory(this.#process);
    return this.#sees;
  }

  #memory(): MemoryTask {
    return { process: this.#process, areas: this.#parts.areas };
  }

  #assertNot(stage: "ran", action: string): void {
    if (this.#stage === stage) throw this.#tooLate(action);
  }

  #tooLate(action: string): PerdureError {
    const state = this.#stage === "ran" ? "has run" : "has state already";
    return new PerdureError("machine_failed", `Cannot ${action}: the machine ${state}`);
  }
}
