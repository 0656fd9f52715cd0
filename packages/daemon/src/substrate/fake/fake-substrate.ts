/**
 * Substrate in memory, for tests: machines are objects on a `FakeHost`. It keeps the order of calls and
 * the refusals of the real one, and it is exact about what a restore must bring back.
 */
import { digestOf, PerdureError, type MachineId, type SubstrateFacts } from "@perdure/protocol";
import type {
  DiskChain,
  Machine,
  MachineRecord,
  MachineSpec,
  Substrate,
} from "../../core/ports/substrate.ts";
import type { FakeHost } from "./fake-host.ts";
import { FakeMachine } from "./fake-machine.ts";
import type { FakeProcess } from "./fake-process.ts";
import type { Faults } from "./fault.ts";
import { Life } from "./life.ts";

export interface FakeSubstrateOptions {
  readonly host: FakeHost;
  readonly faults: Faults;
  readonly life?: Life;
}

export class FakeSubstrate implements Substrate {
  readonly #host: FakeHost;
  readonly #faults: Faults;
  readonly #life: Life;
  readonly #pools = new Map<string, { wanted: number; ready: FakeProcess[] }>();
  #closed = false;

  constructor({ host, faults, life = new Life() }: FakeSubstrateOptions) {
    this.#host = host;
    this.#faults = faults;
    this.#life = life;
  }

  /** Processes that wait in the pools. */
  get spares(): readonly FakeProcess[] {
    return [...this.#pools.values()].flatMap(({ ready }) => ready.filter(({ gone }) => !gone));
  }

  breakEvenBytes(): number {
    return 64 * 1024 * 1024;
  }

  facts(spec: MachineSpec): Promise<SubstrateFacts> {
    return this.#do("facts", () => this.#host.facts(spec));
  }

  keepSpares(spec: MachineSpec, count: number): void {
    const pool = this.#pool(spec);
    pool.wanted = count;
    for (const extra of pool.ready.splice(count)) extra.happen("exited", "spare not wanted");
    this.#fill(spec);
  }

  takeSpare(spec: MachineSpec): Promise<Machine> {
    return this.#do("takeSpare", () => {
      const { ready } = this.#pool(spec);
      let process = ready.shift();
      while (process?.gone === true) process = ready.shift();
      this.#fill(spec);
      return this.#machine(process ?? this.#host.start(spec, null));
    });
  }

  bootCold(spec: MachineSpec, disk: DiskChain): Promise<Machine> {
    return this.#do("bootCold", () => this.#boot(spec, disk, null));
  }

  bootTemplate(
    spec: Omit<MachineSpec, "base">,
    disk: DiskChain,
    basePath: string,
  ): Promise<Machine> {
    return this.#do("bootTemplate", () =>
      this.#boot({ ...spec, base: { kind: "zero" } }, disk, basePath),
    );
  }

  isAlive(record: MachineRecord): Promise<boolean> {
    return this.#do("isAlive", () => this.#processOf(record) !== null);
  }

  end(record: MachineRecord): Promise<void> {
    return this.#do("end", () => this.#processOf(record)?.happen("exited", "ended"));
  }

  adopt(record: MachineRecord, spec: MachineSpec): Promise<Machine | null> {
    return this.#do("adopt", () => {
      const process = this.#processOf(record);
      if (process === null) return null;
      const { diskBytes } = process.spec.shape;
      const shape = { ...spec.shape, diskBytes };
      const same = digestOf(plain(process.spec)) === digestOf(plain({ ...spec, shape }));
      // Its disk may have grown since.
      if (!same || diskBytes > spec.shape.diskBytes)
        throw new PerdureError("machine_failed", "The process runs another spec");
      return this.#machine(process);
    });
  }

  sweep(keep: readonly MachineId[]): Promise<number> {
    return this.#do("sweep", () => {
      const left = this.#host.processes.filter(({ record }) => !keep.includes(record.id));
      for (const process of left) process.happen("exited", "swept");
      return left.length;
    });
  }

  close(): Promise<void> {
    return this.#do("close", () => {
      this.#closed = true;
      for (const spare of this.spares) spare.happen("exited", "the substrate was closed");
      this.#pools.clear();
    });
  }

  #processOf(record: MachineRecord): FakeProcess | null {
    const process = this.#host.process(record.id);
    const same =
      process?.record.pid === record.pid &&
      process.record.startTicks === record.startTicks &&
      record.hostBootId === this.#host.bootId;
    return same ? process : null;
  }

  #boot(spec: MachineSpec, disk: DiskChain, basePath: string | null): Machine {
    const process = this.#host.start(spec, basePath);
    try {
      process.attachDisk(disk);
      process.boot();
    } catch (error) {
      process.happen("exited", "it could not be booted");
      throw error;
    }
    return this.#machine(process);
  }

  #machine(process: FakeProcess): FakeMachine {
    return new FakeMachine(process, this.#host.facts(process.spec), this.#faults, this.#life);
  }

  #pool(spec: MachineSpec): { wanted: number; ready: FakeProcess[] } {
    const key = digestOf(plain(spec));
    const found = this.#pools.get(key) ?? { wanted: 0, ready: [] };
    this.#pools.set(key, found);
    return found;
  }

  /** Starts what is missing, in the background. */
  #fill(spec: MachineSpec): void {
    void this.#do("startSpare", () => {
      const pool = this.#pool(spec);
      while (!this.#closed && pool.ready.length < pool.wanted) {
        pool.ready.push(this.#host.start(spec, null));
      }
    }).catch(() => undefined);
  }

  #do<T>(operation: string, work: () => T): Promise<T> {
    return this.#life.during(async () => {
      await this.#faults.point(`substrate.${operation}`);
      await this.#life.pass();
      return work();
    });
  }
}

/** What a spec's process is, as data to compare. */
function plain({ tenant, shape, base, boot }: MachineSpec) {
  return {
    tenant,
    shape: { ...shape },
    base: base.kind === "zero" ? { kind: base.kind } : { kind: base.kind, digest: base.digest },
    kernel: boot.kernelDigest,
    initramfs: boot.initramfsDigest,
    commandLine: boot.commandLine,
  };
}
