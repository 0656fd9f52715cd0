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
  type CheckpointView,
  type DoctorReport,
  type ListResponse,
  type ProcessView,
  type VerifyEvent,
  type WakeReport,
} from "@perdure/protocol";
import { Actor } from "./actor.ts";
import { agentView, type Agent } from "./agent.ts";
import { checkpointView } from "./checkpoint.ts";
import type {
  Command,
  Commands,
  FileWrite,
  Fork,
  LetOut,
  ListQuery,
  ProcessOutput,
  ProcessTarget,
  ResultOf,
  Results,
  Target,
} from "./command.ts";
import { assertAgentNameFree, firstWake, prepare } from "./create.ts";
import { forkPoint, prepareFork, wakeFork } from "./fork.ts";
import * as inside from "./inside.ts";
import { ruleFor } from "./legality.ts";
import type { Parts } from "./parts.ts";
import type { FileFacts } from "./ports/guest-link.ts";
import type { Machine, MachineEvent } from "./ports/substrate.ts";
import { recover } from "./recover.ts";
import { drop } from "./drop.ts";
import { remove } from "./remove.ts";
import { collectAll, isSettled, restart, settle, giveUp } from "./restart.ts";
import { restore } from "./restore.ts";
import { sleep, takeCheckpoint } from "./sleep.ts";
import { startCold } from "./start.ts";
import { stop } from "./stop.ts";
import { verifyAgent } from "./verify.ts";
import { wake } from "./wake.ts";

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

  constructor(parts: Parts, doctor: () => Promise<DoctorReport>) {
    this.#parts = parts;
    this.#doctor = doctor;
    parts.state.onReserve?.((held) =>
      held
        ? parts.log("info", "There is room on the disk again; new agents are taken on")
        : parts.log(
            "warn",
            "The disk is full: changes of state use the reserve; new agents are refused",
          ),
    );
  }

  /** Settles what an earlier daemon left. Before the first command. */
  async restart(): Promise<void> {
    const hold = (id: AgentId, work: (actor: Actor) => Promise<void>) => this.#hold(id, work);
    await restart(this.#parts, hold);
    collectAll(this.#parts, hold, () => this.#isClosing).catch((error: unknown) => {
      const { message } = PerdureError.from(error);
      this.#parts.log("warn", "Collecting after the restart failed", { message });
    });
  }

  /** Waits for the verbs under way, then lets go of every machine; VMs go on and are adopted later. */
  async close(): Promise<void> {
    this.#closing.abort();
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
      return this.#use(command, (actor) => this.#change(actor, command));
    const { id } = await prepare(this.#parts, command);
    return this.#raiseNew(id, (actor) => this.#bringUp(actor, () => firstWake(actor)));
  }

  /** Holds the origin's lane: what the fork is read from stays there meanwhile. */
  async #fork(origin: Actor, { name, checkpoint }: Fork): Promise<LetOut> {
    ruleFor("fork", origin.agent);
    await assertAgentNameFree(this.#parts, origin.agent.tenant, name);
    const row = await forkPoint(origin, checkpoint);
    const { id } = await prepareFork(origin, row, name);
    return this.#raiseNew(id, async (fork) => {
      await this.#bringUp(fork, () => wakeFork(fork, origin, row));
      return letOut(fork);
    });
  }

  /** `work` on an agent whose row was just stored. */
  async #raiseNew<T>(id: AgentId, work: (actor: Actor) => Promise<T>): Promise<T> {
    this.#creating.add(id);
    try {
      return await this.#hold(id, work);
    } finally {
      this.#creating.delete(id);
    }
  }

  async #bringUp(actor: Actor, raise: () => Promise<void>): Promise<AgentView> {
    try {
      await raise();
    } catch (error) {
      if (actor.agent.state !== "awake") throw error;
      // It was let out: it is there, and a second try would meet its name.
      const { message } = PerdureError.from(error);
      this.#parts.log("warn", "A new agent is awake; what comes after failed", {
        agent: actor.id,
        message,
      });
    }
    return agentView(actor.agent);
  }

  async #change(
    actor: Actor,
    command: Exclude<Command, { kind: "create" }>,
  ): Promise<Results[Command["kind"]]> {
    const exclusive = <T>(work: () => Promise<T>, urgent = false): Promise<T> =>
      this.#alone(actor, work, urgent);
    switch (command.kind) {
      case "exec":
        return inside.exec(actor, this.#wakeForCall, command);
      case "signal":
        await inside.signal(actor, this.#wakeForCall, command);
        return undefined;
      case "sleep":
        await exclusive(async () => {
          if (ruleFor("sleep", actor.agent) === "does") await sleep(actor);
        });
        return agentView(actor.agent);
      case "wake":
        await exclusive(async () => {
          const rule = ruleFor("wake", actor.agent);
          if (rule === "does") await wake(actor);
          if (rule === "recovers") await recover(actor, undefined);
        }, true);
        return letOut(actor);
      case "checkpoint":
        return exclusive(async () => {
          ruleFor("checkpoint", actor.agent);
          return checkpointView(await takeCheckpoint(actor, command.name ?? null));
        });
      case "stop":
        await exclusive(async () => {
          const rule = ruleFor("stop", actor.agent);
          if (rule === "nothing") return;
          if (rule === "wakes") await wake(actor);
          await stop(actor);
        });
        return agentView(actor.agent);
      case "start":
        await exclusive(async () => {
          if (ruleFor("start", actor.agent) === "does")
            await startCold(actor, { fallback: "stopped" });
        }, true);
        return letOut(actor);
      case "recover":
        await this.#aloneWithoutMachine(actor, async () => {
          ruleFor("recover", actor.agent);
          await recover(actor, command.from);
        });
        return letOut(actor);
      case "restore":
        await exclusive(async () => {
          ruleFor("restore", actor.agent);
          await restore(actor, command.checkpoint);
        }, true);
        return letOut(actor);
      case "drop":
        await exclusive(async () => {
          ruleFor("drop", actor.agent);
          await drop(actor, command.checkpoint);
        });
        return agentView(actor.agent);
      case "fork":
        return exclusive(() => this.#fork(actor, command));
      case "remove":
        await this.#aloneWithoutMachine(actor, async () => {
          ruleFor("remove", actor.agent);
          await remove(actor);
        });
        return agentView(actor.agent);
    }
  }

  async list(query: ListQuery): Promise<ListResponse> {
    const agents = await this.#parts.state.listAgents({ ...query, limit: query.limit + 1 });
    const page = agents.slice(0, query.limit);
    return {
      agents: page.map(agentView),
      next: agents.length > page.length ? (page.at(-1)?.name ?? null) : null,
    };
  }

  async show(target: Target): Promise<AgentView> {
    return agentView(await this.#find(target));
  }

  async report(target: Target): Promise<WakeReport | null> {
    return (await this.#find(target)).report;
  }

  async checkpoints(target: Target): Promise<readonly CheckpointView[]> {
    const { id } = await this.#find(target);
    return (await this.#parts.state.checkpoints(id)).map(checkpointView);
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
    target: ProcessTarget,
    offset: number,
    signal: AbortSignal,
  ): Promise<AsyncIterable<ProcessOutput>> {
    return this.#use(target, (actor) =>
      inside.output(actor, this.#wakeForCall, target.process, offset, signal),
    );
  }

  writeStdin(target: ProcessTarget, bytes: Uint8Array, end: boolean): Promise<void> {
    return this.#use(target, (actor) =>
      inside.writeStdin(actor, this.#wakeForCall, target.process, bytes, end),
    );
  }

  readFile(
    target: Target & { readonly path: string; readonly user: string },
  ): Promise<{ readonly facts: FileFacts; readonly bytes: AsyncIterable<Uint8Array> }> {
    return this.#use(target, (actor) =>
      inside.readFile(actor, this.#wakeForCall, target.path, target.user),
    );
  }

  writeFile(target: FileWrite, bytes: AsyncIterable<Uint8Array>): Promise<void> {
    return this.#use(target, (actor) => inside.writeFile(actor, this.#wakeForCall, target, bytes));
  }

  /** For a call that needs the agent awake. */
  readonly #wakeForCall = async (actor: Actor): Promise<void> => {
    const wakeIfAsleep = async (): Promise<void> => {
      if (ruleFor("call", actor.agent) === "wakes") await wake(actor);
    };
    await this.#alone(actor, wakeIfAsleep, true);
  };

  /** As `#alone`, for verbs that do without the machine where it cannot be taken over. */
  #aloneWithoutMachine<T>(actor: Actor, work: () => Promise<T>): Promise<T> {
    return this.#alone(actor, work, true, (error) => giveUp(actor, error));
  }

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
      throw new PerdureError("agent_not_found", `No agent has the name or id "${agent}"`, {
        hint: '"perdure list" shows those that exist',
      });
    }
    return stored;
  }

  async #use<T>(target: Target, work: (actor: Actor) => Promise<T>): Promise<T> {
    if (this.#isClosing) throw new PerdureError("daemon_unreachable", "The daemon is stopping");
    const { id } = await this.#find(target);
    return this.#hold(id, work);
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
      if (slot.loaded !== null && isLeft(slot.loaded)) void this.#settleLater(id);
      this.#forgetIdle();
    }
  }

  async #load(id: AgentId): Promise<Actor> {
    const agent = await this.#parts.state.agent(id);
    if (agent === null) throw new PerdureError("agent_not_found", `No agent has the id "${id}"`);
    return new Actor(this.#parts, agent, this.#onMachineEvent);
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

function letOut(actor: Actor): LetOut {
  return { agent: agentView(actor.agent), report: actor.agent.report };
}

function rethrow(error: unknown): never {
  throw PerdureError.from(error);
}
