/**
 * The world of the simulation: the real engine on fake machines, guests, stores and clocks. What a host
 * and its disks keep outlives a daemon; a daemon can end at any named step, and the next one finds what
 * it left.
 */
import type { ImageConfig } from "@perdure/protocol";
import type { Agent } from "../../packages/daemon/src/core/agent.ts";
import type { ResultOf, Command } from "../../packages/daemon/src/core/command.ts";
import { ConnectionLog } from "../../packages/daemon/src/core/connection-log.ts";
import { Engine } from "../../packages/daemon/src/core/engine.ts";
import { engineLimits } from "../../packages/daemon/src/core/limit.ts";
import { ImageHolds } from "../../packages/daemon/src/core/image-hold.ts";
import { HotChildren } from "../../packages/daemon/src/core/hot-children.ts";
import type { Log } from "../../packages/daemon/src/core/ports/log.ts";
import type { StateStore } from "../../packages/daemon/src/core/ports/state-store.ts";
import { SparePlan } from "../../packages/daemon/src/core/spare-plan.ts";
import type { Step } from "../../packages/daemon/src/core/step.ts";
import { Turns } from "../../packages/daemon/src/core/turns.ts";
import { MemoryFiles } from "../../packages/daemon/src/substrate/fake/fake-file.ts";
import { FakeHost } from "../../packages/daemon/src/substrate/fake/fake-host.ts";
import type { FakeProcess } from "../../packages/daemon/src/substrate/fake/fake-process.ts";
import { FakeSubstrate } from "../../packages/daemon/src/substrate/fake/fake-substrate.ts";
import { Faults } from "../../packages/daemon/src/substrate/fake/fault.ts";
import { Life } from "../../packages/daemon/src/substrate/fake/life.ts";
import { createMemoryStateStore } from "../contract/memory-state-store.ts";
import { CheckpointFolder } from "./checkpoint-folder.ts";
import { CutLog } from "./cut-log.ts";
import { FakeEgress } from "./fake-egress.ts";
import { createGuestLinks } from "./guest-links.ts";
import type { GuestWire } from "./guest-wire.ts";
import { Guest } from "./guest.ts";
import { createIdentities, createImageSource, createImageUses } from "./image-source.ts";
import { MemoryCheckpointStore } from "./memory-checkpoint-store.ts";
import { createMemoryTemplateStore, type TemplateFolder } from "./memory-template-store.ts";
import { CommitLog, observedStateStore } from "./observed-state-store.ts";
import { Oracle } from "./oracle.ts";
import { Random } from "./random.ts";
import { Timeline } from "./timeline.ts";

export const shape = { memoryBytes: 256 * 1024, cpus: 1, diskBytes: 1024 * 1024 };

/** Agents that come up side by side; more wait for their turn. */
export const RAISES_AT_ONCE = 2;

/** What ends at a step. */
export type CrashTarget = "daemon" | "vmm" | "both";

export interface WorldOptions {
  readonly seed?: number;
  /** What holds the agents' rows; in memory by default. */
  readonly state?: StateStore;
  readonly sparesPerSpec?: number;
}

export class World {
  readonly random: Random;
  readonly time: Timeline;
  readonly faults = new Faults();
  readonly files = new MemoryFiles();
  readonly host: FakeHost;
  readonly folder = new CheckpointFolder();
  readonly templates: TemplateFolder = new Map();
  readonly commits = new CommitLog();
  readonly cuts = new CutLog();
  readonly oracle: Oracle;
  /** The store itself, past everything that a daemon's life or a fault is in the way of. */
  readonly state: StateStore;
  readonly stepsPassed: Step[] = [];
  /** What the engine logged as warning or error. */
  readonly complaints: string[] = [];
  /** Images that agents stand on. */
  readonly imageUses = createImageUses();
  /** What the image says of how programs run. */
  imageConfig: ImageConfig | null = null;
  /** Changed memory above which a sleep writes an own base. */
  ownBaseAboveBytes = Infinity;
  /** Of new agents. */
  readonly defaults: { idleAfterMs: number | null; checkpointEveryMs: number | null } = {
    idleAfterMs: null,
    checkpointEveryMs: null,
  };
  engine!: Engine;
  substrate!: FakeSubstrate;
  life!: Life;
  hotChildren!: HotChildren;
  readonly egress = new FakeEgress();
  /** Guest agents are of before, and have no way out. */
  lacksWayOut = false;
  /** Called at every step; what it answers happens there. */
  atStep: ((step: Step) => CrashTarget | null) | null = null;
  /** Called at every step; the verb goes on when it resolves, and no time passes until then. */
  duringStep: ((step: Step) => Promise<void>) | null = null;
  /** What is left of a guest's clock error after it was set. */
  guestSkewMs = 0;
  readonly #sparesPerSpec: number;
  #wires = new Set<GuestWire>();

  constructor({
    seed = 1,
    state = createMemoryStateStore(),
    sparesPerSpec = 1,
  }: WorldOptions = {}) {
    this.random = new Random(seed);
    this.time = new Timeline(1_700_000_000_000, this.random);
    this.host = new FakeHost(this.files, (seat, saved) => {
      const guest = new Guest(seat, saved, this.time);
      guest.skewMs = this.guestSkewMs;
      guest.onCount = (counter) => this.oracle.counted(seat.machine, counter);
      return guest;
    });
    this.oracle = new Oracle(this.host, this.cuts);
    this.host.onKill = (process) => this.commits.killed(process);
    this.commits.onLetOut = (agent) => this.oracle.letOut(agent);
    this.host.onCut = (process, devices) => this.cuts.captured(process, devices);
    this.state = state;
    this.#sparesPerSpec = sparesPerSpec;
    this.#start();
  }

  /** What any part noticed that must never happen. */
  get violations(): readonly string[] {
    return [
      ...this.host.violations,
      ...this.commits.violations,
      ...this.oracle.violations,
      ...this.cuts.violations,
    ];
  }

  /** Ends the daemon as `kill -9` would, if it still lives; the next one settles what it left. */
  async restart(): Promise<void> {
    this.life.end();
    this.#start();
    // With a store of its own: faults are for the engine.
    const log = (): void => undefined;
    const clock = this.time.clock(this.life);
    await this.run(new ConnectionLog({ state: this.state, clock, log }).begin());
    await this.run(this.engine.restart());
  }

  /** Ends the daemon in order; its machines go on. */
  async close(): Promise<void> {
    await this.run(this.engine.close());
    await this.run(this.substrate.close());
  }

  /** Breaks every link into a guest; the machines go on. */
  dropLinks(): void {
    for (const wire of this.#wires) wire.close("the link broke");
  }

  run<T>(work: Promise<T>): Promise<T> {
    return this.time.driveUntil(work);
  }

  execute<C extends Command>(command: C): Promise<ResultOf<C>> {
    return this.run(this.engine.execute(command));
  }

  /** Executes until it is answered or the daemon's life is over; null then. */
  executeOrDie<C extends Command>(command: C): Promise<ResultOf<C> | null> {
    return this.orDie(this.engine.execute(command));
  }

  /** The outcome of `done`; null where the daemon's life is over first. */
  orDie<T>(done: Promise<T>): Promise<T | null> {
    done.catch(() => undefined);
    return this.run(Promise.race([done, this.life.ended.then(() => null)]));
  }

  async agent(name: string): Promise<Agent> {
    const found = await this.state.agentByName("default", name);
    if (found === null) throw new Error(`There is no agent "${name}"`);
    return found;
  }

  /** The process of the agent's lease. */
  async process(name: string): Promise<FakeProcess> {
    const { lease } = await this.agent(name);
    const found = lease === null ? null : this.host.process(lease.machine.id);
    if (found === null) throw new Error(`Agent "${name}" has no machine`);
    return found;
  }

  async guest(name: string): Promise<Guest> {
    const { guest } = await this.process(name);
    if (guest instanceof Guest) return guest;
    throw new Error(`The machine of agent "${name}" has no guest`);
  }

  #start(): void {
    const { host, faults, time, files, random } = this;
    const life = new Life();
    this.life = life;
    this.#wires = new Set();
    this.substrate = new FakeSubstrate({ host, faults, life });
    const clock = time.clock(life);
    this.hotChildren = new HotChildren({ clock, childrenMax: 4, keptMs: 900_000 });
    const checkpoints = new MemoryCheckpointStore({
      folder: this.folder,
      files,
      host,
      faults,
      life,
      onWrite: (draft, devices) =>
        devices === null ? this.oracle.keptDisk(draft) : this.cuts.wrote(draft, devices),
    });
    const log: Log = (level, message, facts) => {
      if (level === "warn" || level === "error") {
        this.complaints.push(`${message} ${JSON.stringify(facts ?? {})}`);
      }
    };
    const state = observedStateStore({ store: this.state, log: this.commits, faults, life, time });
    this.engine = new Engine(
      {
        clock,
        state,
        checkpoints,
        templates: createMemoryTemplateStore({
          folder: this.templates,
          files,
          faults,
          life,
          random,
          nowMs: () => time.nowMs,
        }),
        substrate: this.substrate,
        raises: new Turns(clock, { atOnce: RAISES_AT_ONCE, lendMs: engineLimits.raiseTurnMs }),
        spares: new SparePlan(this.substrate, {
          specsMax: 2,
          sparesPerSpec: this.#sparesPerSpec,
        }),
        hotChildren: this.hotChildren,
        links: createGuestLinks({
          host,
          faults,
          time,
          life,
          wires: this.#wires,
          lacksWayOut: () => this.lacksWayOut,
          isLetOut: (machine) => this.commits.machines.get(machine) ?? null,
        }),
        egress: this.egress,
        connections: new ConnectionLog({ state, clock, log }),
        images: createImageSource(() => this.imageConfig),
        imageHolds: new ImageHolds({
          state: this.state,
          imageUses: this.imageUses,
          clock,
          log: () => undefined,
        }),
        identities: createIdentities(random),
        ownBaseAboveBytes: () => this.ownBaseAboveBytes,
        defaults: this.defaults,
        step: (step, { machinePid }) => this.#step(life, step, machinePid),
        log,
      },
      () => Promise.reject(new Error("The simulation has no doctor")),
    );
  }

  async #step(life: Life, step: Step, machinePid: number | null): Promise<void> {
    await life.pass();
    this.stepsPassed.push(step);
    if (this.duringStep !== null) {
      this.time.pendingWork++;
      await this.duringStep(step);
      this.time.pendingWork--;
    }
    const target = this.atStep?.(step) ?? null;
    if (target === null) return;
    if (target !== "daemon" && machinePid !== null) this.#killPid(machinePid);
    if (target !== "vmm") life.end();
    await life.pass();
  }

  #killPid(pid: number): void {
    this.host.byPid(pid)?.happen("exited", "killed by the test");
  }
}
