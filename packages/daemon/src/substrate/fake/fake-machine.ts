/**
 * A daemon's handle on a fake process. When the daemon's life ends, the handle never answers again and
 * tells no more events; the process goes on.
 */
import { PerdureError, type SubstrateFacts } from "@perdure/protocol";
import { atOnce } from "../../core/at-once.ts";
import type { PageBatch } from "../../core/ports/page.ts";
import type {
  ClockAdvance,
  DiskChain,
  Machine,
  MachineCut,
  MachineEvent,
  MachineRecord,
} from "../../core/ports/substrate.ts";
import { linkPathOf } from "./fake-host.ts";
import type { FakeProcess } from "./fake-process.ts";
import type { Faults } from "./fault.ts";
import type { Life } from "./life.ts";

/** As the port promises. */
const ADVANCE_MS_MAX = 400 * 24 * 3_600_000;

export class FakeMachine implements Machine {
  readonly record: MachineRecord;
  readonly facts: SubstrateFacts;
  readonly linkPath: string;
  readonly #process: FakeProcess;
  readonly #faults: Faults;
  readonly #life: Life;
  readonly #undo = new Set<() => void>();
  #silent = false;
  #released = false;

  constructor(process: FakeProcess, facts: SubstrateFacts, faults: Faults, life: Life) {
    this.record = process.record;
    this.facts = facts;
    this.linkPath = linkPathOf(process.record.runDir);
    this.#process = process;
    this.#faults = faults;
    this.#life = life;
  }

  onEvent(listener: (event: MachineEvent) => void): () => void {
    const told = (event: MachineEvent): void => {
      if (!this.#life.over && !this.#silent) listener(event);
    };
    this.#process.listeners.add(told);
    const undo = (): void => {
      this.#process.listeners.delete(told);
      this.#undo.delete(undo);
    };
    this.#undo.add(undo);
    for (const event of this.#process.happened) told(event);
    return undo;
  }

  attachDisk(chain: DiskChain): Promise<void> {
    return this.#do("attachDisk", () => this.#process.attachDisk(chain));
  }

  async injectMemory(pages: AsyncIterable<PageBatch>): Promise<void> {
    await this.#do("injectMemory", () => undefined);
    for await (const { indexes, bytes } of pages) {
      const pageBytes = bytes.length / indexes.length;
      await this.#life.pass();
      indexes.forEach((index, i) =>
        this.#process.inject(index, bytes.subarray(i * pageBytes, (i + 1) * pageBytes)),
      );
    }
    await this.#life.pass();
  }

  loadDevices(state: Uint8Array, advance?: ClockAdvance): Promise<void> {
    return this.#do("loadDevices", () => {
      if (advance !== undefined && this.facts.movableClock === undefined) {
        throw new PerdureError("machine_failed", "Cannot move the guest's clock: this VMM cannot");
      }
      if (advance !== undefined) assertPossible(advance);
      this.#process.loadDevices(state, advance?.ms);
    });
  }

  run(): Promise<void> {
    return this.#do("run", () => this.#process.run());
  }

  pause(): Promise<void> {
    return this.#do("pause", () => this.#process.pause());
  }

  isRunning(): Promise<boolean> {
    return this.#do("isRunning", () => this.#process.running);
  }

  prepareWake(): Promise<void> {
    return this.#do("prepareWake", () => undefined);
  }

  changedPages(): Promise<number> {
    return this.#do("changedPages", () => this.#process.memory.privatePages().length);
  }

  prepareCut(): Promise<void> {
    return this.#do("prepareCut", () => undefined);
  }

  async cut(layerPath: string): Promise<MachineCut> {
    await this.pause();
    const read = async (): Promise<PageBatch[]> =>
      Array.fromAsync(this.readPages(await this.privatePages()));
    const [batches, devices] = await atOnce([read(), this.saveDevices(), this.addLayer(layerPath)]);
    return { batches, devices };
  }

  privatePages(): Promise<Uint32Array<ArrayBuffer>> {
    return this.#do("privatePages", () => {
      this.#process.assertHalted("scan");
      return this.#process.memory.privatePages();
    });
  }

  async *readPages(indexes: Uint32Array<ArrayBuffer>): AsyncIterable<PageBatch> {
    await this.#do("readPages", () => this.#process.assertHalted("read"));
    for (const batch of this.#process.memory.batches(indexes)) {
      await this.#do("readBatch", () => this.#process.assertHalted("read"));
      yield batch;
    }
  }

  saveDevices(): Promise<Uint8Array<ArrayBuffer>> {
    return this.#do("saveDevices", () => this.#process.saveDevices());
  }

  addLayer(path: string): Promise<void> {
    return this.#do("addLayer", () => this.#process.addLayer(path));
  }

  mergeLayers(below: string, top: string): Promise<void> {
    return this.#do("mergeLayers", () => this.#process.mergeLayers(below, top));
  }

  growDisk(bytes: number): Promise<void> {
    return this.#do("growDisk", () => this.#process.growDisk(bytes));
  }

  usage(): Promise<{ pssBytes: number; privateBytes: number; cpuSeconds: number }> {
    return this.#do("usage", () => {
      const privateBytes = this.#process.memory.privatePages().length * 4096;
      return { pssBytes: privateBytes, privateBytes, cpuSeconds: 0 };
    });
  }

  consoleTail(): Promise<string> {
    return this.#do("consoleTail", () => `console of ${this.record.id}`);
  }

  async kill(): Promise<void> {
    if (this.#released) return;
    this.#silence();
    await this.#life.during(async () => {
      await this.#faults.point("machine.kill");
      await this.#life.pass();
      this.#process.kill();
    });
  }

  async release(): Promise<void> {
    this.#released = true;
    this.#silence();
    await this.#life.pass();
  }

  #silence(): void {
    this.#silent = true;
    for (const undo of [...this.#undo]) undo();
  }

  #do<T>(operation: string, work: () => T): Promise<T> {
    return this.#life.during(async () => {
      if (this.#released) throw new PerdureError("machine_failed", "The machine was released");
      await this.#faults.point(`machine.${operation}`);
      await this.#life.pass();
      this.#process.assertAlive();
      return work();
    });
  }
}

function assertPossible({ ms, tscHz }: ClockAdvance): void {
  if (ms >= 0 && ms <= ADVANCE_MS_MAX && (tscHz === null || tscHz > 0)) return;
  throw new PerdureError("machine_failed", `Cannot move the guest's clock by ${ms} ms`);
}
