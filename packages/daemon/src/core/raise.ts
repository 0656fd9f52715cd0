/**
 * Raise: one mechanism for every route on which an agent gets a machine: create, wake, recover, cold
 * start. Take a process, put the state into it, pass the gate, record the let-out, thaw.
 *
 * - I1: the generation is taken (compare-and-set on the row) before the machine gets a disk to write. Memory and
 *   what lies below the disk's top go in beside that: they are this process's own, or for reading alone. (A cold boot has
 *   its new top before; its CPUs stand still until the claim.)
 * - I3: an attempt that ends before the let-out is recorded leaves the checkpoint as it was and can be
 *   repeated; the generation it took stays used. The let-out is recorded before the thaw is sent.
 * - I4: until then the workload is frozen and the link carries control operations only.
 * - I10: whatever goes wrong, no checkpoint and no layer that anything else needs is removed.
 */
import {
  PerdureError,
  type AgentId,
  type ErrorCode,
  type GateCheck,
  type LayerId,
  type Route,
  type SubstrateFacts,
  type WakeReport,
} from "@perdure/protocol";
import { begunEnd, type Head, type Lease } from "./agent.ts";
import { isPast, type Actor } from "./actor.ts";
import { atOnce } from "./at-once.ts";
import { collectOld } from "./collect.ts";
import { compactDisk } from "./compact.ts";
import { checkUnmediated } from "./egress.ts";
import { startEntrypoint, withChecks } from "./entrypoint.ts";
import { whyFailed } from "./fail.ts";
import { growDisk } from "./grow.ts";
import { noClockPlan, planClock, shortenWaits, type ClockPlan } from "./guest-clock.ts";
import type { HotChild } from "./hot-children.ts";
import { engineLimits } from "./limit.ts";
import { connect, loadState, takeSpare, type SavedState } from "./load.ts";
import { noRoomToWake } from "./no-room.ts";
import { Phases } from "./phases.ts";
import type { GuestIdentity, GuestLink } from "./ports/guest-link.ts";
import type { DiskChain, Machine, MachineSpec, MemoryBase } from "./ports/substrate.ts";
import { connectAgain } from "./reconnect.ts";
import { begunWith, sizeWanted, type Size } from "./size.ts";
import { passGate } from "./wake-gate.ts";
import { whileMachineRuns } from "./while-machine-runs.ts";

/** Where a generation starts from. */
export interface Origin {
  readonly route: Route;
  readonly fallback: Lease["fallback"];
  readonly base: MemoryBase;
  /** Memory over the base, and devices; null: boot from the disk. */
  readonly state: SavedState | null;
  /** A machine that has all of it already; then `state` is null. */
  readonly hot?: HotChild | null;
  /** What it was captured on; null where nothing was. */
  readonly capturedOn: SubstrateFacts | null;
  readonly lowerLayers: readonly LayerId[];
  readonly identity: GuestIdentity | null;
  readonly verified: readonly GateCheck[];
  readonly cut: WakeReport["cut"];
  /** Whose checkpoint that is; absent: its own. */
  readonly cutAgent?: AgentId;
  readonly otherCut: WakeReport["otherCut"];
  /** The newest checkpoint once the agent was let out from here. */
  readonly headAfter: Head | null;
  /** Whether the guest's monotonic clock counts the time away: somebody inside waits for a time. */
  readonly advanceClock: boolean;
}

/** Gives the agent a machine and lets it out. Holds the lane. @returns the wake report, also stored */
export async function raise(actor: Actor, origin: Origin): Promise<WakeReport> {
  const spec = await actor
    .spec(origin.base, sizeFor(actor, origin))
    .catch(async (error: unknown) => {
      await origin.hot?.end();
      throw error;
    });
  try {
    return await (origin.state === null && origin.hot == null
      ? boot(actor, origin, spec)
      : attempt(actor, origin, spec, engineLimits.syncMs));
  } finally {
    // Only now: a spare that starts beside a wake slows it down.
    actor.parts.spares.touch(spec);
  }
}

/**
 * What is booted gets the size that its owner wants. What has memory is what it was captured on: for the head that
 * is the agent's own, and anything else is refused.
 */
function sizeFor({ agent }: Actor, { route, state, hot, capturedOn }: Origin): Size {
  if (hot != null) return hot.machine.facts.shape;
  if (state === null) return sizeWanted(agent);
  return route === "wake" || route === "recover" ? agent.shape : (capturedOn?.shape ?? agent.shape);
}

/** How far its file system reaches; null: it boots, and grows by itself. */
function reachedBytes({ hot, state, capturedOn }: Origin): number | null {
  if (hot != null) return hot.reachedBytes;
  return state === null ? null : (capturedOn?.shape.diskBytes ?? null);
}

/** A boot that stays silent is tried once more, with all the time that a slow host needs. */
async function boot(actor: Actor, origin: Origin, spec: MachineSpec): Promise<WakeReport> {
  try {
    return await attempt(actor, origin, spec, engineLimits.bootFirstMs);
  } catch (error) {
    // Nothing was let out, and the row is what it was before.
    if (PerdureError.from(error).code !== "wake_timeout") throw error;
    return await attempt(actor, origin, spec, engineLimits.bootMs);
  }
}

/** When it is its turn. */
function attempt(
  actor: Actor,
  origin: Origin,
  spec: MachineSpec,
  answerMs: number,
): Promise<WakeReport> {
  const { clock, raises } = actor.parts;
  const phases = new Phases(clock);
  return raises.run(() => {
    phases.mark("turn");
    return attemptNow(actor, origin, spec, answerMs, phases);
  });
}

async function attemptNow(
  actor: Actor,
  origin: Origin,
  spec: MachineSpec,
  answerMs: number,
  phases: Phases,
): Promise<WakeReport> {
  const { parts } = actor;
  const verb = origin.route;
  const startedAtMs = parts.clock.nowMs();
  const previousGeneration = actor.agent.generation;
  const generation = previousGeneration + 1;

  const hot = origin.hot ?? null;
  const topLayer = hot?.topLayer ?? actor.newLayerId();
  let machine: Machine | null = hot?.machine ?? null;
  const layer =
    hot === null
      ? parts.checkpoints.createLayer(actor.id, topLayer, actor.agent.shape.diskBytes)
      : Promise.resolve();
  layer.catch(() => undefined); // Awaited before the machine gets it, or after the machine was ended.
  const since = checkConnections(actor, origin);
  since.catch(() => undefined); // Awaited before the gate.
  let memory = Promise.resolve();
  let report: WakeReport | null = null;
  let clocks = noClockPlan;
  const planNow = (facts: SubstrateFacts): ClockPlan => {
    const { advanceClock, capturedOn, cut } = origin;
    const awayMs = advanceClock ? parts.clock.nowMs() - cut.atMs : null;
    return capturedOn === null ? noClockPlan : planClock(capturedOn, facts, awayMs);
  };
  try {
    const chain = await actor.disk([...origin.lowerLayers, topLayer]);
    machine ??= await takeMachine(actor, origin, spec, chain, layer);
    phases.mark("machine");
    memory = origin.state === null ? memory : machine.injectMemory(origin.state.pages());
    memory.catch(() => undefined); // Awaited with the disk, or after the machine was ended.
    const lease: Lease = {
      machine: machine.record,
      route: origin.route,
      lowerLayers: origin.lowerLayers,
      topLayer,
      base: {
        kind: origin.base.kind,
        digest: origin.base.kind === "zero" ? null : origin.base.digest,
      },
      letOut: false,
      fallback: origin.fallback,
    };
    const [link] = await atOnce([
      hot === null ? connect(actor, machine) : actor.hold(hot.link),
      actor.save({ state: "waking", generation, lease, paused: null }),
      origin.state === null ? null : atOnce([layer, machine.prepareWake(chain)]),
    ]);
    actor.machine = machine;
    actor.base = origin.base;
    await actor.step(`${verb}.claimed`);
    phases.mark("claim");

    if (origin.state !== null) {
      const { facts } = machine;
      await loadState(machine, origin.state, chain, memory, {
        advance: () => (clocks = planNow(facts)).advance,
        mark: (phase) => phases.mark(phase),
      });
    }
    // The first words wait in the link when the guest begins to run.
    const synced =
      hot === null ? answering(actor, machine, link.sync(generation, answerMs)) : undefined;
    await Promise.all([machine.run(), synced]);
    phases.mark("first-answer");
    await actor.step(`${verb}.restored`);

    // Whatever the guest writes from here on counts once it was let out.
    const durable = parts.checkpoints.syncLayer(actor.id, topLayer);
    durable.catch(() => undefined);
    const gate = passGate({
      link,
      clock: parts.clock,
      generation,
      openWayOut: () => actor.egress.open(link),
      identity: origin.identity,
      restored: origin.state !== null || hot !== null,
      clocks,
      verified: [...origin.verified, ...(await since)],
      draft: {
        version: 1,
        agent: actor.id,
        name: actor.agent.name,
        route: origin.route,
        generation,
        previousGeneration,
        startedAtMs,
        awayMs: Math.max(0, startedAtMs - origin.cut.atMs),
        cut: origin.cut,
        otherCut: origin.otherCut,
      },
    });
    report = await answering(actor, machine, gate);
    phases.mark("gate");
    assertMayContinue(actor, report);
    await durable;
    await actor.save({
      state: "awake",
      lease: { ...lease, letOut: true },
      ...begunWith(actor.agent, spec.shape, reachedBytes(origin)),
      head: origin.headAfter,
      disk: null,
      failure: null,
      waitDueMs: null,
      wakeAtMs: isPast(actor, actor.agent.wakeAtMs) ? null : actor.agent.wakeAtMs,
      end: begunEnd(actor.agent, parts.clock.nowMs()),
      quarantine: null,
      identityDue: false,
      report: { ...report, letOutAtMs: parts.clock.nowMs(), phases: phases.all },
    });
    phases.mark("record");
  } catch (error) {
    const again = againOf(origin, actor.agent.name);
    const why =
      machine === null
        ? PerdureError.from(error)
        : await whyFailed(actor, machine, `its ${verb}`, error, again);
    const { code } = why;
    // The row goes back to what it was and tells nothing of it.
    parts.log("warn", "A wake attempt failed", { agent: actor.id, route: verb, generation, code });
    await undo(actor, machine, [layer, memory], topLayer, origin.fallback);
    if (report?.verdict === "quarantine") await bar(actor, report, origin.fallback);
    throw why;
  }
  actor.watch();
  await actor.step(`${verb}.let-out`);
  try {
    report = await letOut(actor, report, clocks, phases);
  } catch (error) {
    throw await whyFailed(actor, machine, `its ${verb}`, error);
  }
  await actor.step(`${verb}.thawed`);
  await growDisk(actor);
  // After a plain wake a cut comes, which does it. Crashes may follow each other without one.
  if (verb !== "wake" && (await compactDisk(actor))) await collectOld(actor);
  return report;
}

/** @throws `agent_quarantined` where a check of the gate failed */
function assertMayContinue({ agent: { name } }: Actor, { checks, verdict }: WakeReport): void {
  if (verdict !== "quarantine") return;
  const why = checks.filter(({ outcome }) => outcome === "failed").map(({ detail }) => detail);
  throw new PerdureError(
    "agent_quarantined",
    `The wake gate refused to let agent "${name}" out: ${why.join(" ")}`,
    {
      hint: `"perdure report ${name}" says more; "perdure release ${name}", "perdure recover ${name} --from checkpoint|disk" or "perdure restore ${name} CHECKPOINT" lead out`,
    },
  );
}

/** The attempt is undone, and nobody tries again before an operator has said so. A new agent is gone already. */
async function bar(actor: Actor, report: WakeReport, from: Lease["fallback"]): Promise<void> {
  if (from === "creating") return;
  const reason = "The wake gate refused to let it out";
  await actor.save({ state: "quarantined", quarantine: { reason, from }, report });
}

/**
 * Hooks, thaw, and the link opened for users. The agent counts as let out already: a guest that does not
 * answer here is connected to again, and whatever comes of that, the agent stays awake.
 */
async function letOut(
  actor: Actor,
  report: WakeReport,
  clocks: ClockPlan,
  phases: Phases,
): Promise<WakeReport> {
  const link = actor.requireLink();
  const checks = [...report.checks, ...(await runHooks(link))];
  try {
    if (clocks.advance !== null) checks.push(...(await checkWaits(link)));
    await link.thaw();
    link.letOut();
    actor.egress.begin(link);
  } catch (error) {
    link.close(PerdureError.from(error).message);
    await connectAgain(actor);
  }
  phases.mark("thaw");
  // A reconnection above may have made another link.
  const started = await startEntrypoint(actor, actor.requireLink(), report);
  const final: WakeReport = {
    ...(started.length === 0 ? { ...report, checks } : withChecks({ ...report, checks }, started)),
    letOutAtMs: actor.parts.clock.nowMs(),
    phases: phases.all,
  };
  try {
    await actor.save({ report: final });
  } catch (error) {
    // It is let out, and the report is stored but for its last figures.
    const { message } = PerdureError.from(error);
    actor.parts.log("warn", "The last of a wake report could not be stored", { message });
  }
  return final;
}

/**
 * Connections out since the cut, where it is not the end of what the agent did. Of a fork they are its origin's: it
 * remembers no more of them.
 */
async function checkConnections(actor: Actor, origin: Origin): Promise<GateCheck[]> {
  const { route, cut, cutAgent = actor.id } = origin;
  if (route !== "restore" && route !== "recover" && route !== "fork") return [];
  return [checkUnmediated(await actor.parts.state.unmediatedSince(cutAgent, cut.atMs))];
}

/** Part of the clock's move, so that it is said only where it failed. */
async function checkWaits(link: GuestLink): Promise<GateCheck[]> {
  const why = await shortenWaits(link);
  if (why === null) return [];
  const detail = `Waits in select and ppoll may last longer by the time away: ${why}`;
  return [{ check: "clock-waits", outcome: "notice", detail }];
}

async function runHooks(link: GuestLink): Promise<GateCheck[]> {
  try {
    const hooks = await link.runHooks(engineLimits.hooksMs);
    return hooks.map(({ path, exitCode, signal }): GateCheck => {
      const how = exitCode === null ? `signal ${String(signal)}` : `exit code ${exitCode}`;
      const passed = exitCode === 0;
      return {
        check: "hooks",
        outcome: passed ? "passed" : "notice",
        detail: passed ? `${path} ran.` : `${path} ended with ${how}.`,
      };
    });
  } catch (error) {
    return [{ check: "hooks", outcome: "notice", detail: PerdureError.from(error).message }];
  }
}

/** The way on after an attempt that left everything as it was. */
function againOf({ route, fallback }: Origin, name: string): string {
  if (route === "fork") return "Fork it again";
  switch (fallback) {
    case "creating":
      return "Create it again";
    case "asleep":
      return `Nothing was lost: "perdure wake ${name}" tries again; "perdure recover ${name} --from disk" starts it cold from its disk`;
    case "stopped":
      return `Nothing was lost: "perdure start ${name}" tries again`;
    case "failed":
      return `Nothing was lost: "perdure recover ${name} --from checkpoint|disk" tries again`;
  }
}

async function takeMachine(
  actor: Actor,
  origin: Origin,
  spec: MachineSpec,
  chain: DiskChain,
  layer: Promise<void>,
): Promise<Machine> {
  if (origin.state !== null) return takeSpare(actor, spec, origin.capturedOn);
  await layer;
  return actor.parts.substrate.bootCold(spec, chain);
}

/** How a guest says that it cannot be let out, or says nothing. */
const silent = new Set<ErrorCode>(["guest_timeout", "freeze_timeout"]);

/** What is asked of a guest that was not let out yet: a VM that ends or goes silent ends the attempt. */
async function answering<T>(actor: Actor, machine: Machine, work: Promise<T>): Promise<T> {
  const { name } = actor.agent;
  try {
    return await whileMachineRuns(machine, work, ({ kind, detail }) =>
      kind === "io-error"
        ? noRoomToWake(name, detail)
        : new PerdureError(
            "machine_failed",
            `The VM of agent "${name}" ended before it answered (${kind}): ${detail}`,
          ),
    );
  } catch (error) {
    if (error instanceof PerdureError && silent.has(error.code)) {
      const tail = await machine.consoleTail().catch(() => "");
      throw new PerdureError(
        "wake_timeout",
        `Agent "${name}" did not answer at its wake; its VM was torn down and its checkpoint kept: ${error.message}`,
        {
          hint: `Try again, or "perdure recover ${name} --from disk" starts it cold from its disk`,
          ...(tail === "" ? {} : { details: { console: tail.slice(-512) } }),
          cause: error,
        },
      );
    }
    throw error;
  }
}

/** Ends an attempt that was not let out: machine gone, its layer gone, the row back where it was. */
async function undo(
  actor: Actor,
  machine: Machine | null,
  underWay: readonly Promise<void>[],
  topLayer: LayerId,
  fallback: Lease["fallback"],
): Promise<void> {
  const { parts } = actor;
  actor.detach("the wake failed");
  await machine?.kill();
  await Promise.allSettled(underWay);
  await parts.checkpoints.removeLayer(actor.id, topLayer);
  if (actor.agent.lease !== null) await actor.save({ state: fallback, lease: null });
}
