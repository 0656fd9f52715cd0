/**
 * What each verb does to an agent, in the state that it meets (legality.ts says which). The engine has the
 * agent's actor and its lane; here is what is done with them.
 */
import { PerdureError, type AgentId, type AgentView, type HotView } from "@perdure/protocol";
import type { Actor } from "./actor.ts";
import { agentView, type Agent } from "./agent.ts";
import { checkpointView } from "./checkpoint.ts";
import type { Command, Fork, KeepHot, LetOut, Results } from "./command.ts";
import { assertAgentNameFree } from "./create.ts";
import { drop } from "./drop.ts";
import { forkPoint, prepareFork, wakeFork, type WantedFork } from "./fork.ts";
import { cutSource, type CutSource } from "./fork-files.ts";
import { gc } from "./gc.ts";
import { configure, endHold, hold } from "./hold.ts";
import { keepHotChildren } from "./hot-child.ts";
import { changeFiles } from "./inside-file.ts";
import * as inside from "./inside.ts";
import { findCheckpoint } from "./keep.ts";
import { ruleFor } from "./legality.ts";
import { setPort } from "./port.ts";
import { quarantine, release } from "./quarantine.ts";
import { recover } from "./recover.ts";
import { remove } from "./remove.ts";
import { restore } from "./restore.ts";
import { sleep, takeCheckpoint } from "./sleep.ts";
import { startCold } from "./start.ts";
import { stop } from "./stop.ts";
import { wake } from "./wake.ts";

/** What the engine does for a verb. */
export interface Door {
  /** Runs `work` alone on the agent, once it is settled. `urgent`: its caller wants the agent awake. */
  alone<T>(actor: Actor, work: () => Promise<T>, urgent: boolean): Promise<T>;
  /** As `alone`, urgent, for verbs that do without the machine where it cannot be taken over. */
  aloneWithoutMachine<T>(actor: Actor, work: () => Promise<T>): Promise<T>;
  /** For a call that needs the agent awake. */
  readonly wakeForCall: (actor: Actor) => Promise<void>;
  withAgent<T>(id: AgentId, work: (actor: Actor) => Promise<T>): Promise<T>;
  /** The daemon stops: what takes long ends. */
  readonly closing: AbortSignal;
  /** `work` on an agent whose row was just stored. */
  raiseNew<T>(id: AgentId, work: (actor: Actor) => Promise<T>): Promise<T>;
}

export async function carryOut(
  actor: Actor,
  command: Exclude<Command, { kind: "create" }>,
  door: Door,
): Promise<Results[Command["kind"]]> {
  const alone = <T>(work: () => Promise<T>, urgent = false): Promise<T> =>
    door.alone(actor, work, urgent);
  switch (command.kind) {
    case "exec":
      return inside.exec(actor, door.wakeForCall, command);
    case "signal":
      await inside.signal(actor, door.wakeForCall, command);
      return undefined;
    case "resize":
      await inside.resize(actor, door.wakeForCall, command);
      return undefined;
    case "makeFolder":
    case "movePath":
    case "removePath":
      await changeFiles(actor, door.wakeForCall, command);
      return undefined;
    case "sleep":
      await alone(async () => {
        if (ruleFor("sleep", actor.agent) !== "does") return;
        const { wakesForWaits = true, cancellable = true } = command;
        await sleep(actor, { wakesForWaits, cancellable });
      });
      return viewOf(actor);
    case "wake":
      await alone(async () => {
        const rule = ruleFor("wake", actor.agent);
        if (rule === "does") await wake(actor);
        if (rule === "recovers") await recover(actor, undefined);
      }, true);
      return letOutOf(actor);
    case "checkpoint":
      return alone(async () => {
        ruleFor("checkpoint", actor.agent);
        return checkpointView(
          await takeCheckpoint(actor, { kind: "named", name: command.name ?? null }),
        );
      });
    case "configure":
      await alone(async () => {
        ruleFor("configure", actor.agent);
        await configure(actor, command);
      });
      return viewOf(actor);
    case "set-port":
      return alone(async () => {
        ruleFor("set-port", actor.agent);
        return { agent: actor.id, port: command.port, ...(await setPort(actor, command)) };
      });
    case "set-egress":
      return alone(async () => {
        ruleFor("set-egress", actor.agent);
        await actor.save({ egress: command.policy });
        actor.egress.changed();
        return actor.egress.view();
      });
    case "hold":
      return alone(async () => {
        if (ruleFor("hold", actor.agent) === "wakes") await wake(actor);
        return hold(actor, command);
      }, true);
    case "end-hold":
      await alone(async () => {
        ruleFor("end-hold", actor.agent);
        await endHold(actor, command.hold);
      });
      return viewOf(actor);
    case "quarantine":
      await alone(async () => {
        if (ruleFor("quarantine", actor.agent) === "does") await quarantine(actor, command.reason);
      });
      return viewOf(actor);
    case "release":
      await alone(async () => {
        ruleFor("release", actor.agent);
        await release(actor);
      });
      return viewOf(actor);
    case "stop":
      await alone(async () => {
        const rule = ruleFor("stop", actor.agent);
        if (rule === "nothing") return;
        if (rule === "wakes") await wake(actor);
        await stop(actor);
      });
      return viewOf(actor);
    case "start":
      await alone(async () => {
        if (ruleFor("start", actor.agent) === "does")
          await startCold(actor, { fallback: "stopped" });
      }, true);
      return letOutOf(actor);
    case "recover":
      await door.aloneWithoutMachine(actor, async () => {
        ruleFor("recover", actor.agent);
        await recover(actor, command.from);
      });
      return letOutOf(actor);
    case "restore":
      await alone(async () => {
        ruleFor("restore", actor.agent);
        await restore(actor, command.checkpoint);
      }, true);
      return letOutOf(actor);
    case "drop":
      await alone(async () => {
        ruleFor("drop", actor.agent);
        await drop(actor, command.checkpoint);
      });
      return viewOf(actor);
    case "fork":
      return alone(() => forkAll(actor, command, door));
    case "hot":
      return alone(() => keepHot(actor, command));
    case "gc":
      return alone(() => {
        ruleFor("gc", actor.agent);
        return gc(actor, door.closing);
      });
    case "remove":
      await door.aloneWithoutMachine(actor, async () => {
        ruleFor("remove", actor.agent);
        await remove(actor);
      });
      return viewOf(actor);
  }
}

/** Holds the origin's lane: what the forks are read from stays there meanwhile. All are made, or none. */
async function forkAll(
  origin: Actor,
  { names, checkpoint, owner = {}, egress }: Fork,
  door: Door,
): Promise<readonly LetOut[]> {
  ruleFor("fork", origin.agent);
  const { parts, agent } = origin;
  for (const name of names) await assertAgentNameFree(parts, agent.tenant, name);
  const row = await forkPoint(origin, checkpoint);
  const source = await cutSource(origin, row, names.length);
  const made = await Promise.allSettled(
    names.map((name) => forkOne(source, { name, owner, egress }, door)),
  );
  const failed = made.find((one) => one.status === "rejected");
  const forks = made.flatMap((one) => (one.status === "fulfilled" ? [one.value] : []));
  if (failed === undefined) return forks;
  for (const { agent: fork } of forks) {
    await door.withAgent(fork.id, (actor) => door.aloneWithoutMachine(actor, () => remove(actor)));
  }
  throw PerdureError.from(failed.reason);
}

async function forkOne(source: CutSource, wanted: WantedFork, door: Door): Promise<LetOut> {
  const { origin, row } = source;
  const hot = await origin.parts.hotChildren.take(row.id, "fork");
  let fork: Agent;
  try {
    fork = await prepareFork(source, wanted, hot);
  } catch (error) {
    await hot?.end();
    throw error;
  }
  return door.raiseNew(fork.id, async (actor) => {
    await bringUp(actor, () => wakeFork(actor, source, hot));
    return letOutOf(actor);
  });
}

async function keepHot(actor: Actor, { checkpoint, use, count }: KeepHot): Promise<HotView> {
  ruleFor("hot", actor.agent);
  const { hotChildren } = actor.parts;
  const wanted = checkpoint ?? actor.agent.head?.checkpoint;
  if (wanted === undefined) {
    const { name, state } = actor.agent;
    throw new PerdureError("checkpoint_not_found", `Agent "${name}" has no checkpoint`, {
      hint:
        state === "awake"
          ? `"perdure checkpoint ${name}" or "perdure sleep ${name}" takes one`
          : `One is taken while it is awake; "perdure why ${name}" says what makes it so`,
    });
  }
  const row = await findCheckpoint(actor, wanted);
  await keepHotChildren(actor, row, { use, count });
  return { checkpoint: row.id, use, ready: hotChildren.ready(row.id, use) };
}

/** Raises a new agent. */
export async function bringUp(actor: Actor, raise: () => Promise<void>): Promise<AgentView> {
  try {
    await raise();
  } catch (error) {
    if (actor.agent.state !== "awake") throw error;
    // It was let out: it is there, and a second try would meet its name.
    const { message } = PerdureError.from(error);
    actor.parts.log("warn", "A new agent is awake; what comes after failed", {
      agent: actor.id,
      message,
    });
  }
  return viewOf(actor);
}

function viewOf(actor: Actor): AgentView {
  return agentView(actor.agent, actor.parts.clock.nowMs());
}

function letOutOf(actor: Actor): LetOut {
  return { agent: viewOf(actor), report: actor.agent.report };
}
