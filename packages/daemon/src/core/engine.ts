/**
 * Engine: the one place that executes commands, one lane per agent.
 *
 * Front doors parse into `Command`; the table in legality.ts says what a verb does in the state it
 * meets; sleep.ts, wake.ts and their neighbours carry it out step by step. An agent has an actor while
 * something happens to it or it has a machine; a sleeping one that nobody asks costs nothing here.
 *
 * Invariants kept here: one actor per agent, so one lane per agent (I1); reads never wait for a lane.
 */
import {
  agentIdSchema,
  PerdureError,
  type AgentId,
  type AgentView,
  type CheckpointsResponse,
  type ConnectionsResponse,
  type DoctorReport,
  type EgressView,
  type ListResponse,
  type ProcessView,
  type VerifyEvent,
  type WakeReport,
  type Why,
} from "@perdure/protocol";
import { Actor } from "./actor.ts";
import { agentView, dueMs, wakeDueMs, type Agent } from "./agent.ts";
import { Alarm } from "./alarm.ts";
import { Attendant } from "./attendant.ts";
import { bringUp, carryOut, type Door } from "./carry-out.ts";
import type {
  AgentConnection,
  Command,
  Commands,
  ListQuery,
  PageQuery,
  ProcessOutput,
  ProcessTarget,
  ResultOf,
  Results,
  Target,
} from "./command.ts";
import { firstWake, prepare } from "./create.ts";
import { egressView } from "./egress.ts";
import { userOf } from "./exec-default.ts";
import { openExport } from "./export.ts";
import { flattenDisk, isChainLong } from "./flatten.ts";
import { Flattener } from "./flattener.ts";
import type { FileCommands, FileWrite, PathTarget, WatchEvent } from "./file-command.ts";
import { prepareImport, takeIn } from "./import.ts";
import * as insideFile from "./inside-file.ts";
import * as inside from "./inside.ts";
import { ruleFor } from "./legality.ts";
import { checkpointById, listAgents, listCheckpoints } from "./list.ts";
import { tellOfReserve } from "./no-room.ts";
import { noSuchAgent } from "./no-such-agent.ts";
import type { Parts } from "./parts.ts";
import { connect } from "./port.ts";
import type { AgentExport } from "./ports/export-file.ts";
import type { FileFacts, FolderEntry, GuestStats } from "./ports/guest-link.ts";
import type { AgeQuery } from "./ports/state-store.ts";
import type { Machine, MachineEvent } from "./ports/substrate.ts";
import { remove } from "./remove.ts";
import { collectAll, isSettled, restart, settle, giveUp } from "./restart.ts";
import { sleep } from "./sleep.ts";
import type { Export, Import, Imported } from "./transfer-command.ts";
import { verifyAgent } from "./verify.ts";
import { wake } from "./wake.ts";
import { whyOf } from "./why.ts";

/** Waits before what a failed verb left is settled: doubled with each try, from the first to the longest. */
const SETTLE_FIRST_MS = 1_000;
const SETTLE_LONGEST_MS = 60_000;

/** An actor and how many calls hold it. */
interface Slot {
  readonly actor: Promise<Actor>;
  loaded: Actor | null;
  users: number;
}

export class Engine implements Commands {
  readonly #parts: Parts;
  readonly #doctor: () => Promise<DoctorReport>;
  readonly #slots = new Map<AgentId, Slot>();
  /** Agents whose create is under way. */
  readonly #creating = new Set<AgentId>();
  /** Agents that are settled again and again until it works. */
  readonly #settling = new Set<AgentId>();
  readonly #closing = new AbortController();
  readonly #alarm: Alarm;
  readonly #flattener: Flattener;

  constructor(parts: Parts, doctor: () => Promise<DoctorReport>) {
    this.#parts = parts;
    this.#doctor = doctor;
    this.#alarm = new Alarm(parts, this.#actOnDue, this.#closing.signal);
    this.#flattener = new Flattener(parts, this.#flatten, this.#closing.signal);
    parts.state.onReserve?.((held) => tellOfReserve(parts.log, held));
  }

  /** Settles what an earlier daemon left. Before the first command. */
  async restart(): Promise<void> {
    const hold = (id: AgentId, work: (actor: Actor) => Promise<void>) => this.#hold(id, work);
    await restart(this.#parts, hold);
    await this.#parts.imageHolds.reconcile();
    this.#alarm.nudge();
    collectAll(this.#parts, hold, () => this.#isClosing).catch((error: unknown) => {
      const { message } = PerdureError.from(error);
      this.#parts.log("warn", "Collecting after the restart failed", { message });
    });
  }

  /** Waits for the verbs under way, then lets go of every machine; VMs go on and are adopted later. */
  async close(): Promise<void> {
    this.#closing.abort();
    this.#parts.imageHolds.close();
    await this.#parts.hotChildren.close();
    await Promise.all(
      [...this.#slots.keys()].map((id) =>
        this.#hold(id, (actor) =>
          actor.lane.exclusive(async () => {
            const { machine } = actor;
            actor.detach("the daemon stops");
            await machine?.release();
          }),
        ),
      ),
    );
  }

  async execute<C extends Command>(command: C): Promise<ResultOf<C>> {
    // Each branch of #perform answers what Results says for its kind.
    return (await this.#perform(command)) as ResultOf<C>;
  }

  async #perform(command: Command): Promise<Results[Command["kind"]]> {
    if (command.kind !== "create")
      return this.#use(command, (actor) => carryOut(actor, command, this.#door));
    const { id } = await prepare(this.#parts, command);
    return this.#raiseNew(id, (actor) => bringUp(actor, () => firstWake(actor)));
  }

  readonly #door: Door = {
    alone: (actor, work, urgent) => this.#alone(actor, work, urgent),
    aloneWithoutMachine: (actor, work) =>
      this.#alone(actor, work, true, (error) => giveUp(actor, error)),
    wakeForCall: (actor) => this.#wakeForCall(actor),
    withAgent: (id, work) => this.#hold(id, work),
    closing: this.#closing.signal,
    raiseNew: (id, work) => this.#raiseNew(id, work),
  };

  /** `work` on an agent whose row was just stored. */
  async #raiseNew<T>(id: AgentId, work: (actor: Actor) => Promise<T>): Promise<T> {
    this.#creating.add(id);
    try {
      return await this.#hold(id, work);
    } finally {
      this.#creating.delete(id);
    }
  }

  list(query: ListQuery): Promise<ListResponse> {
    return listAgents(this.#parts.state, query, this.#parts.clock.nowMs());
  }

  async listByAge(query: AgeQuery): Promise<readonly AgentView[]> {
    const nowMs = this.#parts.clock.nowMs();
    return (await this.#parts.state.agentsByAge(query)).map((agent) => agentView(agent, nowMs));
  }

  async show(target: Target): Promise<AgentView> {
    return agentView(await this.#find(target), this.#parts.clock.nowMs());
  }

  async why(target: Target): Promise<Why> {
    const agent = await this.#find(target);
    return whyOf(agent, this.#slots.get(agent.id)?.loaded?.attendance ?? null);
  }

  async environment(target: Target): Promise<Readonly<Record<string, string>>> {
    return (await this.#find(target)).env ?? {};
  }

  userOf(target: Target): Promise<string> {
    return this.#use(target, (actor) => userOf(actor, undefined));
  }

  usage(target: Target): Promise<GuestStats> {
    return this.#use(target, (actor) =>
      inside.withLink(actor, this.#settleForCall, (link) => link.stats()),
    );
  }

  findCheckpoint({
    tenant,
    checkpoint,
  }: Parameters<Commands["findCheckpoint"]>[0]): ReturnType<Commands["findCheckpoint"]> {
    return checkpointById(this.#parts, tenant, checkpoint);
  }

  async report(target: Target): Promise<WakeReport | null> {
    return (await this.#find(target)).report;
  }

  async checkpoints(query: PageQuery): Promise<CheckpointsResponse> {
    return listCheckpoints(this.#parts.state, (await this.#find(query)).id, query);
  }

  async egress(target: Target): Promise<EgressView> {
    const agent = await this.#find(target);
    return this.#slots.get(agent.id)?.loaded?.egress.view() ?? egressView(agent);
  }

  async connections(query: PageQuery): Promise<ConnectionsResponse> {
    const { id } = await this.#find(query);
    return this.#parts.connections.page(id, query.after, query.limit);
  }

  async verify(
    target: Target & { readonly checkpoint?: string },
    signal: AbortSignal,
  ): Promise<AsyncIterable<VerifyEvent>> {
    const until = AbortSignal.any([signal, this.#closing.signal]);
    return verifyAgent(this.#parts, await this.#find(target), target.checkpoint, until);
  }

  doctor(): Promise<DoctorReport> {
    return this.#doctor();
  }

  processes(target: Target): Promise<readonly ProcessView[]> {
    return this.#use(target, (actor) => inside.processes(actor, this.#wakeForCall));
  }

  output(
    target: ProcessTarget & { readonly wakes?: boolean },
    offset: number,
    signal: AbortSignal,
  ): Promise<AsyncIterable<ProcessOutput>> {
    return this.#use(target, (actor) =>
      inside.output(actor, this.#waker(target), target.process, offset, signal),
    );
  }

  writeStdin(
    target: ProcessTarget,
    bytes: Uint8Array,
    end: boolean,
    gone: AbortSignal,
  ): Promise<void> {
    return this.#use(target, (actor) =>
      inside.writeStdin(actor, this.#wakeForCall, { process: target.process, bytes, end }, gone),
    );
  }

  connect(
    target: Target & { readonly port: number; readonly wakes?: boolean },
  ): Promise<AgentConnection> {
    return this.#use(target, (actor) => connect(actor, this.#waker(target), target.port));
  }

  stat(target: PathTarget): Promise<FileFacts> {
    return this.#use(target, (actor) => insideFile.stat(actor, this.#wakeForCall, target));
  }

  listFolder(target: PathTarget): Promise<AsyncIterable<FolderEntry>> {
    return this.#use(target, (actor) => insideFile.listFolder(actor, this.#wakeForCall, target));
  }

  readFile(target: Parameters<FileCommands["readFile"]>[0]): ReturnType<FileCommands["readFile"]> {
    return this.#use(target, (actor) => insideFile.readFile(actor, this.#wakeForCall, target));
  }

  writeFile(target: FileWrite, bytes: AsyncIterable<Uint8Array>): Promise<void> {
    return this.#use(target, (actor) =>
      insideFile.writeFile(actor, this.#wakeForCall, target, bytes),
    );
  }

  watch(
    target: PathTarget & { readonly recursive: boolean; readonly wakes: boolean },
    signal: AbortSignal,
  ): Promise<AsyncIterable<WatchEvent>> {
    return this.#use(target, (actor) =>
      insideFile.watch(actor, this.#waker(target), target, signal),
    );
  }

  #waker({ wakes = true }: { readonly wakes?: boolean }): inside.Waker {
    return wakes ? this.#wakeForCall : this.#settleForCall;
  }

  export(request: Export): Promise<AgentExport> {
    return this.#use(request, (actor) =>
      this.#alone(actor, () => openExport(actor, request), false),
    );
  }

  async import(request: Import, bytes: AsyncIterable<Uint8Array>): Promise<Imported> {
    this.#assertOpen();
    const file = await this.#parts.checkpoints.openImport(bytes, request.passphrase);
    try {
      const { id } = await prepareImport(this.#parts, request, file);
      return await this.#raiseNew(id, (actor) => takeIn(actor, file));
    } finally {
      await file.close();
    }
  }

  /** For the alarm. Whoever did it or put it off meanwhile has won. */
  readonly #actOnDue = (id: AgentId): Promise<void> =>
    this.#hold(id, async (actor) => {
      const act = (): Promise<void> => this.#doDue(actor);
      const isWake = wakeDueMs(actor.agent) !== null;
      // What is removed need not be taken over first.
      if (!isWake && actor.agent.end?.then === "remove") {
        await this.#door.aloneWithoutMachine(actor, act);
      } else await this.#alone(actor, act, isWake);
    });

  async #doDue(actor: Actor): Promise<void> {
    const atMs = dueMs(actor.agent);
    if (atMs === null || atMs > this.#parts.clock.nowMs()) return;
    if (wakeDueMs(actor.agent) !== null) await wake(actor);
    else if (actor.agent.end?.then === "remove") await remove(actor);
    else await sleep(actor, { because: "end", cancellable: false, wakesForWaits: false });
  }

  /** For the flattener. */
  readonly #flatten = (id: AgentId): Promise<void> =>
    this.#hold(id, (actor) =>
      this.#alone(
        actor,
        async () => {
          if (isChainLong(actor.agent)) await flattenDisk(actor, this.#closing.signal);
        },
        false,
      ),
    );

  /** For a call that needs the agent awake. */
  readonly #wakeForCall = async (actor: Actor): Promise<void> => {
    const wakeIfAsleep = async (): Promise<void> => {
      if (ruleFor("call", actor.agent) === "wakes") await wake(actor);
    };
    await this.#alone(actor, wakeIfAsleep, true);
  };

  /** For a call that would rather fail than wake the agent. */
  readonly #settleForCall = (actor: Actor): Promise<void> =>
    this.#alone(
      actor,
      () => {
        inside.requireAwake(actor);
        return Promise.resolve();
      },
      false,
    );

  /** Runs `work` alone on the agent, once it is settled. */
  #alone<T>(
    actor: Actor,
    work: () => Promise<T>,
    urgent: boolean,
    unsettled: (error: unknown) => Promise<void> = rethrow,
  ): Promise<T> {
    return actor.lane.exclusive(async () => {
      await this.#settle(actor).catch(unsettled);
      const done = await work();
      // What it let go of has ended, or it would have failed.
      actor.ending = null;
      return done;
    }, urgent);
  }

  get #isClosing(): boolean {
    return this.#closing.signal.aborted;
  }

  async #settle(actor: Actor): Promise<void> {
    const isNew = actor.agent.state === "creating" && this.#creating.has(actor.id);
    if (!isNew && !this.#isClosing) await settle(actor);
  }

  /** Settles the agent when a verb could not, and tries until it works. Between tries its lane is free. */
  async #settleLater(id: AgentId): Promise<void> {
    if (this.#settling.has(id)) return;
    this.#settling.add(id);
    const { clock, log } = this.#parts;
    for (let ms = SETTLE_FIRST_MS; ; ms = Math.min(2 * ms, SETTLE_LONGEST_MS)) {
      try {
        await clock.wait(ms, this.#closing.signal);
        await this.#hold(id, (actor) => actor.lane.exclusive(() => this.#settle(actor)));
        break;
      } catch (error) {
        const { code, message } = PerdureError.from(error);
        // Someone else has finished its removal meanwhile.
        if (this.#isClosing || code === "agent_not_found") break;
        log("warn", "An agent could not be settled", { agent: id, message });
      }
    }
    this.#settling.delete(id);
  }

  async #find({ tenant, agent }: Target): Promise<Agent> {
    const id = agentIdSchema.safeParse(agent);
    const { state } = this.#parts;
    const stored = id.success ? await state.agent(id.data) : await state.agentByName(tenant, agent);
    if (stored?.tenant !== tenant || stored.state === "removed") {
      throw noSuchAgent(agent);
    }
    return stored;
  }

  async #use<T>(target: Target, work: (actor: Actor) => Promise<T>): Promise<T> {
    this.#assertOpen();
    const { id } = await this.#find(target);
    return this.#hold(id, work);
  }

  #assertOpen(): void {
    if (this.#isClosing) throw new PerdureError("daemon_unreachable", "The daemon is stopping");
  }

  /** The agent's one actor, loaded when nobody held it; let go when nobody does and it has no machine. */
  async #hold<T>(id: AgentId, work: (actor: Actor) => Promise<T>): Promise<T> {
    let slot = this.#slots.get(id);
    if (slot === undefined) {
      const made: Slot = { actor: this.#load(id), loaded: null, users: 0 };
      made.actor.then(
        (actor) => (made.loaded = actor),
        () => this.#slots.delete(id),
      );
      this.#slots.set(id, made);
      slot = made;
    }
    slot.users++;
    try {
      return await work(await slot.actor);
    } finally {
      slot.users--;
      if (slot.loaded !== null) {
        if (isLeft(slot.loaded)) void this.#settleLater(id);
        this.#flattener.look(slot.loaded.agent);
      }
      this.#forgetIdle();
    }
  }

  async #load(id: AgentId): Promise<Actor> {
    const agent = await this.#parts.state.agent(id);
    if (agent === null) throw new PerdureError("agent_not_found", `No agent has the id "${id}"`);
    return new Actor(this.#parts, agent, {
      onMachineEvent: this.#onMachineEvent,
      attend: (actor, stop) => {
        const alone = (work: () => Promise<void>): Promise<void> =>
          this.#hold(id, () => this.#alone(actor, work, false));
        return new Attendant(actor, alone, AbortSignal.any([stop, this.#closing.signal]));
      },
      onDueChanged: () => this.#alarm.nudge(),
    });
  }

  readonly #onMachineEvent = (actor: Actor, machine: Machine, event: MachineEvent): void => {
    void this.#hold(actor.id, (held) =>
      held.lane.exclusive(async () => {
        // A verb that was under way may have ended this machine meanwhile.
        if (held.machine !== machine) return;
        held.missed = event;
        await this.#settle(held);
      }),
    ).catch((error: unknown) => {
      this.#parts.log("error", "Handling a machine's event failed", {
        agent: actor.id,
        event: event.kind,
        message: PerdureError.from(error).message,
      });
    });
  };

  #forgetIdle(): void {
    for (const [id, { users, loaded }] of this.#slots) {
      if (users > 0 || loaded === null || loaded.machine !== null || !loaded.lane.idle) continue;
      if (isSettled(loaded)) this.#slots.delete(id);
    }
  }
}

/** Whether the last verb left it in a state that is none to stay in. */
function isLeft(actor: Actor): boolean {
  return actor.lane.idle && !isSettled(actor);
}

function rethrow(error: unknown): never {
  throw PerdureError.from(error);
}
