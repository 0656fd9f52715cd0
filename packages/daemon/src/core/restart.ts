/**
 * Restart: what a daemon does with what the one before it left, whenever and however that one ended; and
 * with what a verb of its own left that could not even store its failure (`settle`). Each transitional
 * state has its rule here; I1–I3 hold afterwards: per agent one machine or one whole checkpoint, nothing
 * orphaned, no stranger touched.
 *
 * | state found | rule |
 * |---|---|
 * | creating | its caller was never answered, or with an error: removed |
 * | waking, not let out | the attempt's machine ends, its layer goes, the state before stands |
 * | falling-asleep | not published: the machine is adopted, goes on and is thawed: awake |
 * | stopping | adopted, awake; if it powered off meanwhile its event makes it stopped |
 * | awake | adopted; gone: failed (crashed) |
 * | asleep, stopped, failed | left-overs of writes and older checkpoints are collected, in the background |
 * | removed | the removal is finished |
 */
import { PerdureError, type AgentId, type MachineId } from "@perdure/protocol";
import { bootFiles, type Actor } from "./actor.ts";
import type { Agent, Lease } from "./agent.ts";
import { collectOld } from "./collect.ts";
import { completeEntrypoint } from "./entrypoint.ts";
import { crashed } from "./fail.ts";
import { growDisk } from "./grow.ts";
import { handleMachineEvent } from "./machine-event.ts";
import { engineLimits } from "./limit.ts";
import type { Parts } from "./parts.ts";
import type { Clock } from "./ports/clock.ts";
import type { MemoryBase } from "./ports/substrate.ts";
import { goOn } from "./reconnect.ts";
import { removeFiles } from "./remove.ts";

/** How many of the sleeping agents that were used last get a spare of their spec. */
const EXPECTED_WAKES = 2;
const IDS_PER_PAGE = 500;

/**
 * Brings every agent into a settled state; one whose VM keeps that waiting gets there later, and keeps nobody else
 * waiting. `hold` gives the actor of an agent while it works.
 */
export async function restart(
  parts: Parts,
  hold: (id: AgentId, work: (actor: Actor) => Promise<void>) => Promise<void>,
): Promise<void> {
  const unsettled = await parts.state.unsettledAgents();
  const ended = await parts.substrate.sweep(machinesOf(unsettled));
  if (ended > 0) parts.log("info", "Ended left-over VM processes", { count: ended });
  await removeUnknownFolders(parts);
  await parts.images.tidy().catch((error: unknown) => {
    const { message } = PerdureError.from(error);
    parts.log("warn", "The images folder could not be tidied", { message });
  });
  const settled = Promise.all(
    unsettled.map(async (agent) => {
      try {
        await hold(agent.id, (actor) => actor.lane.exclusive(() => settle(actor)));
      } catch (error) {
        parts.log("error", "An agent could not be settled after the restart", {
          agent: agent.id,
          message: PerdureError.from(error).message,
        });
      }
    }),
  );
  // A VM that did not fit its record, and so was not adopted, would go on writing its agent's disk. Beside one that
  // is still settled, which may be booting anew, nothing is swept.
  if (await inTime(settled, parts.clock)) {
    await parts.substrate.sweep(machinesOf(await parts.state.unsettledAgents()));
  }
  await expectWakes(parts);
}

async function inTime(work: Promise<unknown>, clock: Clock): Promise<boolean> {
  const ended = new AbortController();
  const late = clock.wait(engineLimits.restartMs, ended.signal).then(
    () => false,
    () => true,
  );
  const isInTime = await Promise.race([work.then(() => true), late]);
  ended.abort();
  return isInTime;
}

/** Machines that were let out and not removed since: an owner stands behind each. */
function machinesOf(agents: readonly Agent[]): MachineId[] {
  return agents.flatMap(({ lease, state }) =>
    lease?.letOut === true && state !== "removed" ? [lease.machine.id] : [],
  );
}

/** Spares for the agents that were used last. */
async function expectWakes(parts: Parts): Promise<void> {
  const asleep = await parts.state.lastAsleep(EXPECTED_WAKES);
  // The newest is asked for last: it is the one to keep.
  for (const { tenant, template, shape, image } of asleep.toReversed()) {
    try {
      const found = await parts.templates.open(tenant, template);
      // One whose memory was set since stands on a base of its own, or on none.
      if (found?.substrate.shape.memoryBytes !== shape.memoryBytes) continue;
      const boot = await bootFiles(parts, image.id);
      parts.spares.touch({ tenant, shape, base: found.base, boot });
    } catch (error) {
      parts.log("warn", "No spare could be planned", { message: PerdureError.from(error).message });
    }
  }
}

/** Folders whose agent the state store does not know: a create or remove that died at its edge. */
async function removeUnknownFolders(parts: Parts): Promise<void> {
  const known = new Set(await Array.fromAsync(agentIds(parts)));
  for (const id of await parts.checkpoints.listAgents()) {
    if (!known.has(id)) await parts.checkpoints.removeAgent(id);
  }
}

/** Ids of all agents. Of those that sleep nothing else is held in memory, however many they are. */
async function* agentIds({ state }: Parts): AsyncIterable<AgentId> {
  let after: AgentId | null = null;
  do {
    const page: readonly AgentId[] = await state.agentIds(after, IDS_PER_PAGE);
    yield* page;
    after = page.at(-1) ?? null;
  } while (after !== null);
}

/** Whether nothing is left over that `settle` would do. Meaningful while no verb is under way. */
export function isSettled(actor: Actor): boolean {
  const { agent, machine, ending, missed } = actor;
  if (actor.gone) return true;
  if (ending !== null || missed !== null) return false;
  switch (agent.state) {
    case "awake":
      return machine !== null && actor.isWatched;
    case "asleep":
    case "stopped":
    case "quarantined":
    case "failed":
      return machine === null;
    case "creating":
    case "waking":
    case "falling-asleep":
    case "stopping":
    case "removed":
      return false;
  }
}

/**
 * Leads the agent out of what nobody works on any more: a transitional state, a machine that was to be
 * ended, an event that could not be stored. Idempotent, and nothing to do mostly. Holds the lane.
 */
export async function settle(actor: Actor): Promise<void> {
  if (isSettled(actor)) return;
  const { state } = actor.agent;
  const hasMachine = state === "awake" || state === "falling-asleep" || state === "stopping";
  if (!hasMachine) actor.detach("it should have ended");
  await actor.ending?.kill();
  actor.ending = null;
  if (state === "creating" || state === "removed") await removeFiles(actor);
  if (state === "waking") await undoAttempt(actor);
  if (hasMachine && (state !== "awake" || !actor.isWatched)) await adopt(actor);
  if (actor.missed !== null) {
    await handleMachineEvent(actor, actor.missed);
    actor.missed = null;
    actor.ending = null;
  }
}

async function undoAttempt(actor: Actor): Promise<void> {
  const { lease } = actor.agent;
  if (lease === null) return;
  if (lease.fallback === "creating") {
    await removeFiles(actor);
    return;
  }
  await actor.parts.checkpoints.removeLayer(actor.id, lease.topLayer);
  await actor.save({ state: lease.fallback, lease: null });
}

async function adopt(actor: Actor): Promise<void> {
  const { parts, agent } = actor;
  const { lease } = agent;
  if (lease === null) return;
  if (actor.machine === null && (await parts.substrate.isAlive(lease.machine))) {
    const base = await baseOf(actor, lease);
    actor.machine = await parts.substrate.adopt(lease.machine, await actor.spec(base));
    actor.base = base;
  }
  if (actor.machine === null) {
    await crashed(actor, "The VM process is gone, and nobody was there when it ended");
    return;
  }
  try {
    await goOn(actor, actor.machine);
    await completeEntrypoint(actor, actor.requireLink());
  } catch (error) {
    // Not a reason to end it: its memory can still be put to sleep, and calls connect again. If it
    // powered off or crashed, its event, told at once below, says so.
    parts.log("warn", "A VM that was taken over does not answer", {
      agent: agent.id,
      message: PerdureError.from(error).message,
    });
  }
  // A machine that still waits for room tells so again, at once below.
  await actor.save({ state: "awake", paused: null });
  actor.watch();
  await growDisk(actor);
}

/** Ends a machine that cannot be taken over, for verbs that can do without it: failed. Holds the lane. */
export async function giveUp(actor: Actor, error: unknown): Promise<void> {
  const { lease } = actor.agent;
  if (lease === null) throw PerdureError.from(error);
  actor.detach("it cannot be taken over");
  await actor.parts.substrate.end(lease.machine);
  const { message } = PerdureError.from(error);
  await crashed(actor, `The VM could not be taken over and was ended: ${message}`);
}

/** The base that the lease's machine has mapped. */
async function baseOf(actor: Actor, lease: Lease): Promise<MemoryBase> {
  const { parts, agent } = actor;
  const { kind, digest } = lease.base;
  switch (kind) {
    case "zero":
      return { kind };
    case "template": {
      const template = await parts.templates.open(agent.tenant, agent.template);
      if (template?.base.digest === digest) return template.base;
      break;
    }
    case "own":
      if (digest !== null) {
        return { kind, digest, path: parts.checkpoints.ownBasePath(agent.id, digest) };
      }
      break;
  }
  throw new PerdureError(
    "checkpoint_not_found",
    `The memory base of agent "${agent.name}" is gone`,
  );
}

/** Collects what a daemon that died left in the folders of agents, one after another. */
export async function collectAll(
  parts: Parts,
  hold: (id: AgentId, work: (actor: Actor) => Promise<void>) => Promise<void>,
  stopped: () => boolean,
): Promise<void> {
  for await (const id of agentIds(parts)) {
    if (stopped()) return;
    await hold(id, (actor) =>
      actor.lane.exclusive(async () => {
        if (actor.agent.state !== "removed") await collectOld(actor);
      }),
    ).catch((error: unknown) => {
      // Removed meanwhile.
      if (PerdureError.from(error).code !== "agent_not_found") throw error;
    });
  }
}
