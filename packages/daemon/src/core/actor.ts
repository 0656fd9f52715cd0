/**
 * Actor: one agent in memory while something happens to it: its row as stored, its lane, and the
 * handles on its machine and link while it has them. A sleeping agent that nobody asks has no actor.
 *
 * I1: `save` is a compare-and-set on the row's revision; an actor that lost the race can store nothing.
 */
import {
  makeId,
  PerdureError,
  type AgentId,
  type CheckpointId,
  type Digest,
  type LayerId,
  type WhyReason,
} from "@perdure/protocol";
import { dueMs, type Agent } from "./agent.ts";
import { Callers } from "./callers.ts";
import { AgentEgress } from "./egress.ts";
import { eventsOf, recorded } from "./event.ts";
import { Lane } from "./lane.ts";
import { agentPaused } from "./no-room.ts";
import type { Parts } from "./parts.ts";
import type { GuestLink } from "./ports/guest-link.ts";
import type { StateChange } from "./ports/state-store.ts";
import type {
  BootFiles,
  DiskChain,
  Machine,
  MachineEvent,
  MachineSpec,
  MemoryBase,
} from "./ports/substrate.ts";
import type { Size } from "./size.ts";
import type { Step } from "./step.ts";

/** Looks after an awake agent (attendant.ts). Times are milliseconds since the epoch. */
export interface Attendance {
  /** What needs the agent awake at this moment. */
  readonly needs: readonly WhyReason[];
  /** When it will be put to sleep if nothing happens until then. */
  readonly sleepDueMs: number | null;
  /** When the first program inside that waits for a time is due. */
  readonly waitDueMs: number | null;
  /** As `waitDueMs`, for a sleep that comes before the waits were looked at for long enough. */
  lookForWait(): Promise<number | null>;
  /** A checkpoint of the agent, which goes on, begins; call what is returned once it is published. */
  cutBegins(): (pauseMs: number) => void;
  /** Settings or holds have changed: looks at once. */
  nudge(): void;
}

/** What the engine does for its actors. */
export interface ActorHooks {
  /** Called, outside the lane, for what a watched machine does on its own. */
  readonly onMachineEvent: (actor: Actor, machine: Machine, event: MachineEvent) => void;
  /** Begins to look after the agent, until `stop` aborts. */
  readonly attend: (actor: Actor, stop: AbortSignal) => Attendance;
  /** The alarm is to act on the agent at another time than before. */
  readonly onDueChanged: () => void;
}

export class Actor {
  readonly lane = new Lane();
  readonly parts: Parts;
  machine: Machine | null = null;
  link: GuestLink | null = null;
  /** What the machine has mapped as memory. */
  base: MemoryBase | null = null;
  /** A machine that was let go of to be ended, until it is known that it has. */
  ending: Machine | null = null;
  /** What the machine did on its own, until what follows from it is done. */
  missed: MachineEvent | null = null;
  /** Its row is deleted. */
  gone = false;
  /** Who is attached from outside. */
  readonly callers: Callers;
  readonly egress: AgentEgress;
  /** Looks after the agent while it is awake. */
  attendance: Attendance | null = null;
  readonly #hooks: ActorHooks;
  #unwatch: (() => void) | null = null;
  #agent: Agent;

  constructor(parts: Parts, agent: Agent, hooks: ActorHooks) {
    this.parts = parts;
    this.#agent = agent;
    this.#hooks = hooks;
    this.callers = new Callers(parts.clock);
    this.egress = new AgentEgress({
      egress: parts.egress,
      agent: () => this.#agent,
      teller: ({ id, generation }) =>
        parts.connections.teller(id, generation, () => this.callers.enter()()),
    });
  }

  get agent(): Agent {
    return this.#agent;
  }

  get id(): AgentId {
    return this.#agent.id;
  }

  /** Stores a change of the agent together with `also` and their events, in one transaction. */
  async save(
    change: Partial<Omit<Agent, "id" | "revision" | "changedAtMs">>,
    also: readonly StateChange[] = [],
  ): Promise<void> {
    const agent: Agent = {
      ...this.#agent,
      ...change,
      revision: this.#agent.revision + 1,
      changedAtMs: this.parts.clock.nowMs(),
    };
    const before = this.#agent;
    await this.parts.state.commit([
      { kind: "update-agent", agent, expectedRevision: before.revision },
      ...also,
      ...recorded(eventsOf(before, agent, also, agent.changedAtMs)),
    ]);
    this.#agent = agent;
    if (dueMs(agent) !== dueMs(before)) this.#hooks.onDueChanged();
  }

  step(step: Step): Promise<void> {
    const machinePid = (this.machine?.record ?? this.#agent.lease?.machine)?.pid ?? null;
    return this.parts.step(step, { machinePid });
  }

  newLayerId(): LayerId {
    return makeId("dl", this.parts.clock.nowMs(), this.parts.clock.randomBytes(10));
  }

  newCheckpointId(): CheckpointId {
    return makeId("cp", this.parts.clock.nowMs(), this.parts.clock.randomBytes(10));
  }

  /** Layers of the newest disk, lowest first: what the machine writes, else what is recorded. */
  newestLayers(): readonly LayerId[] {
    const { lease, disk } = this.#agent;
    return lease === null ? (disk ?? []) : [...lease.lowerLayers, lease.topLayer];
  }

  /** The machine spec of this agent over `base`, by default of its own size. @throws `image_not_found` */
  async spec(base: MemoryBase, size: Size = this.#agent.shape): Promise<MachineSpec> {
    const { image, tenant } = this.#agent;
    const { memoryBytes, cpus } = size;
    const shape = { memoryBytes, cpus, diskBytes: this.#agent.shape.diskBytes };
    return { tenant, shape, base, boot: await bootFiles(this.parts, image.id) };
  }

  /** The agent's disk as files: image, then these layers. */
  async disk(layers: readonly LayerId[]): Promise<DiskChain> {
    const image = await this.parts.images.resolve(this.#agent.image.id);
    return {
      imagePath: image.rootfs?.path ?? null,
      layerPaths: layers.map((layer) => this.parts.checkpoints.layerPath(this.id, layer)),
    };
  }

  /** What a manifest says about the image below the layers. */
  async imageFacts(): Promise<{ digest: Digest; bytes: number } | null> {
    const { rootfs } = await this.parts.images.resolve(this.#agent.image.id);
    return rootfs === null ? null : { digest: rootfs.sha256, bytes: rootfs.bytes };
  }

  /** @throws `agent_paused` where the VM stands still for want of room on the host's disk */
  assertNotPaused(): void {
    const { paused } = this.#agent;
    if (paused !== null) throw agentPaused(this.#agent, paused);
  }

  /** The live link. @throws `guest_unreachable` */
  requireLink(): GuestLink {
    if (this.link === null) {
      throw new PerdureError(
        "guest_unreachable",
        `The link into agent "${this.agent.name}" is down`,
        {
          hint: `"perdure sleep ${this.agent.name}" still keeps its memory; "perdure wake ${this.agent.name}" connects again then`,
        },
      );
    }
    return this.link;
  }

  requireMachine(): Machine {
    if (this.machine === null) {
      throw new PerdureError("machine_failed", `Agent "${this.agent.name}" has no machine`);
    }
    return this.machine;
  }

  requireBase(): MemoryBase {
    if (this.base === null) {
      throw new PerdureError("internal", `Agent "${this.agent.name}" runs on no known base`);
    }
    return this.base;
  }

  /** Keeps `link` as the live one until it closes. */
  hold(link: GuestLink): GuestLink {
    this.link = link;
    void link.closed.then(() => {
      if (this.link === link) this.link = null;
    });
    return link;
  }

  /** Begins to follow what the machine does on its own, and to look after the agent. */
  watch(): void {
    const machine = this.requireMachine();
    this.unwatch();
    const stop = new AbortController();
    const unwatch = machine.onEvent((event) => {
      this.#hooks.onMachineEvent(this, machine, event);
    });
    this.attendance = this.#hooks.attend(this, stop.signal);
    this.#unwatch = () => {
      stop.abort();
      unwatch();
    };
  }

  get isWatched(): boolean {
    return this.#unwatch !== null;
  }

  unwatch(): void {
    this.#unwatch?.();
    this.#unwatch = null;
    this.attendance = null;
  }

  /** Lets go of machine and link handles; says why to those who are attached. */
  detach(reason: string): void {
    this.unwatch();
    this.link?.close(reason);
    this.link = null;
    if (this.machine !== null) this.ending = this.machine;
    this.machine = null;
    this.base = null;
    this.missed = null;
  }
}

/** Whether a moment, milliseconds since the epoch, has come. */
export function isPast({ parts }: Actor, atMs: number | null): boolean {
  return atMs !== null && atMs <= parts.clock.nowMs();
}

/** What an image boots from, as the substrate wants it. */
export async function bootFiles(parts: Parts, image: Digest): Promise<BootFiles> {
  const { kernel, initramfs, commandLine, guestAgent } = await parts.images.resolve(image);
  return {
    kernelPath: kernel.path,
    kernelDigest: kernel.sha256,
    initramfsPath: initramfs.path,
    initramfsDigest: initramfs.sha256,
    commandLine,
    guestProtocol: guestAgent.protocol,
  };
}
