/**
 * Sleep and checkpoint: the same cut, without and with going on.
 *
 * - I2, publish, then forget: the checkpoint's files are durable, then one transaction names it and
 *   (for a sleep) gives up the lease, then the machine ends, then older checkpoints are collected. (An agent that
 *   goes on at once, because it is restored, has them collected when it was let out.)
 * - I4: flush, freeze, flush the little that came between, stop the CPUs. A sleep goes on when freeze
 *   or flush miss their deadlines and is marked; a named checkpoint is refused.
 * - I10: a sleep that fails before publication leaves the agent awake, thawed and answering.
 *
 * A call that arrives before publication cancels the sleep (`sleep_cancelled`).
 */
import { PAGE_BYTES, PerdureError, type LayerId } from "@perdure/protocol";
import { isPast, type Actor } from "./actor.ts";
import { atOnce } from "./at-once.ts";
import type { CheckpointRow } from "./checkpoint.ts";
import { collectOld } from "./collect.ts";
import { compactDisk } from "./compact.ts";
import { guestClockFacts } from "./guest-clock.ts";
import { engineLimits } from "./limit.ts";
import { tidyMemory } from "./guest-memory.ts";
import { assertNameFree } from "./keep.ts";
import type { GuestLink } from "./ports/guest-link.ts";
import type { PageBatch } from "./ports/page.ts";
import type { Machine, MachineCut } from "./ports/substrate.ts";
import { crashed, whyFailed } from "./fail.ts";
import { goOn } from "./reconnect.ts";
import { runAgain } from "./run-again.ts";
import { capturedFacts } from "./size.ts";
import { draftOf, rowOf, storeStep, type Quiet } from "./publish.ts";

export interface SleepOptions {
  /** Whether a call that arrives before publication keeps the agent awake; default true. */
  readonly cancellable?: boolean;
  /** Default: its owner. */
  readonly because?: "asked" | "idle" | "end";
  /** Whether a program inside that waits for a time wakes it then; default true. */
  readonly wakesForWaits?: boolean;
  /**
   * The agent does not rest: when this resolves another machine of its own is ready, and goes on at once. What pays in
   * a rest alone is left out: its page cache is kept, no base is written, and older checkpoints are collected by
   * whoever goes on.
   */
  readonly nextReady?: Promise<void>;
}

/** Puts an awake agent to sleep: its checkpoint is published, no process is left. Holds the lane. */
export async function sleep(
  actor: Actor,
  { cancellable = true, because = "asked", wakesForWaits = true, nextReady }: SleepOptions = {},
): Promise<void> {
  const { parts } = actor;
  const machine = actor.requireMachine();
  const { attendance } = actor;
  // A time that came while it was awake is over; one that comes from here on wakes it.
  const wakeAtMs = isPast(actor, actor.agent.wakeAtMs) ? null : actor.agent.wakeAtMs;
  await actor.save({ state: "falling-asleep", wakeAtMs });
  let row: CheckpointRow;
  try {
    await actor.step("sleep.begun");
    // A VM that is paused for want of room does not answer: its CPUs stand still.
    const link = actor.agent.paused === null ? actor.link : null;
    if (link !== null) await compactDisk(actor);
    const layers = actor.newestLayers();
    // Answered while the guest flushes. An idle agent was looked at for all of its idle time.
    const clock = guestClockFacts(link);
    const isKnown = because === "idle" || link === null;
    const waits = !wakesForWaits
      ? null
      : isKnown
        ? attendance?.waitDueMs
        : attendance?.lookForWait();
    if (link !== null) await flushed(link, engineLimits.flushMs);
    const waitDueMs = (await waits) ?? null;
    // What is not on the disk yet cannot be dropped.
    const isTidied = link !== null && nextReady === undefined;
    const inUse = isTidied ? await tidyMemory(actor, machine, link) : null;
    const quiet = await quiesce(link);
    await actor.step("sleep.frozen");
    if (cancellable) cancelIfWanted(actor);
    await machine.pause();
    const pages = await machine.privatePages();
    const held = await reserve(actor, pages.length);
    try {
      const devices = await machine.saveDevices();
      await actor.step("sleep.paused");
      const draft = await draftOf(actor, {
        kind: "sleep",
        name: null,
        layers,
        quiet,
        substrate: capturedFacts(actor.agent, { ...machine.facts, ...(await clock) }),
      });
      const published = await parts.checkpoints.write(
        draft,
        {
          base: actor.requireBase(),
          pages: machine.readPages(pages),
          devices,
          // Freed pages differ from the base as well, but they are zero and cost little.
          ownBase:
            nextReady === undefined &&
            Math.min(pages.length * PAGE_BYTES, inUse ?? Infinity) > parts.ownBaseAboveBytes(),
        },
        storeStep(actor, "sleep"),
      );
      if (cancellable) cancelIfWanted(actor);
      row = rowOf(draft, published, null);
    } finally {
      held.release();
    }
    await actor.save(
      {
        state: "asleep",
        lease: null,
        paused: null,
        head: { checkpoint: row.id, continued: false },
        disk: layers,
        waitDueMs: waitDueMs === null ? null : Math.min(waitDueMs, latestWakeMs(actor)),
        asleepBecause: because,
      },
      [{ kind: "insert-checkpoint", checkpoint: row }],
    );
  } catch (error) {
    const why = await whyFailed(actor, machine, "its sleep", error);
    await stayAwake(actor, machine);
    throw why;
  }
  await actor.step("sleep.published");
  await nextReady;
  actor.detach("sleep");
  await machine.kill();
  await actor.step("sleep.machine-gone");
  if (nextReady !== undefined) return;
  await collectOld(actor);
  await actor.step("sleep.collected");
}

/** A wait inside that is due later wakes its agent nevertheless. */
function latestWakeMs({ parts }: Actor): number {
  return parts.clock.nowMs() + engineLimits.waitFarMs;
}

export interface LiveCut {
  readonly kind: "named" | "periodic";
  readonly name: string | null;
}

/** Takes a checkpoint of an awake agent that goes on. Holds the lane. */
export async function takeCheckpoint(actor: Actor, live: LiveCut): Promise<CheckpointRow> {
  const machine = actor.requireMachine();
  try {
    return await cutAndPublish(actor, machine, live);
  } catch (error) {
    throw await whyFailed(actor, machine, "a checkpoint", error);
  }
}

async function cutAndPublish(
  actor: Actor,
  machine: Machine,
  { kind, name }: LiveCut,
): Promise<CheckpointRow> {
  const { parts } = actor;
  actor.assertNotPaused();
  const link = actor.requireLink();
  if (name !== null) await assertNameFree(actor, name);
  await compactDisk(actor);
  const { lease, shape } = actor.agent;
  if (lease === null) throw new PerdureError("internal", "An awake agent has no lease");
  const layers = actor.newestLayers();
  const nextTop = actor.newLayerId();
  const pages = await machine.changedPages();
  const held = await reserve(actor, pages);
  try {
    await parts.checkpoints.createLayer(actor.id, nextTop, shape.diskBytes);
    await parts.checkpoints.syncLayer(actor.id, nextTop);
    await machine.prepareCut(parts.checkpoints.layerPath(actor.id, nextTop));
    const [clock] = await atOnce([guestClockFacts(link), link.flush(engineLimits.flushMs)]);
    // Recorded before the switch: an empty layer above the real top reads the same, a missing one loses data.
    await actor.save({ lease: { ...lease, lowerLayers: layers, topLayer: nextTop } });
    await actor.step("checkpoint.layer-recorded");

    const cutPublished = actor.attendance?.cutBegins();
    const startMs = parts.clock.monotonicMs();
    const cut = await captureRunning(actor, machine, link, nextTop, async () => {
      await actor.save({ lease });
      await parts.checkpoints.removeLayer(actor.id, nextTop);
    });
    const pauseMs = Math.round((parts.clock.monotonicMs() - startMs) * 100) / 100;
    await actor.step("checkpoint.thawed");
    // What is left writes what was captured: the agent goes on, and whoever calls is answered.
    actor.lane.letCallsIn();
    await setClock(actor, link);
    const draft = await draftOf(actor, {
      kind,
      name,
      layers,
      quiet: { frozen: true, clean: cut.clean },
      substrate: capturedFacts(actor.agent, { ...machine.facts, ...clock }),
    });
    const published = await parts.checkpoints.write(
      draft,
      {
        base: actor.requireBase(),
        pages: fromArray(cut.machine.batches),
        devices: cut.machine.devices,
        ownBase: false,
      },
      storeStep(actor, "checkpoint"),
    );
    const row = rowOf(draft, published, pauseMs);
    await actor.save({ head: { checkpoint: row.id, continued: true } }, [
      { kind: "insert-checkpoint", checkpoint: row },
    ]);
    cutPublished?.(pauseMs);
    await actor.step("checkpoint.published");
    await collectOld(actor);
    await actor.step("checkpoint.collected");
    return row;
  } finally {
    held.release();
  }
}

/** The pause put the guest's clock behind; not worth losing the checkpoint over. */
async function setClock(actor: Actor, link: GuestLink): Promise<void> {
  try {
    await link.setClock(engineLimits.clockMs);
  } catch (error) {
    const { message } = PerdureError.from(error);
    actor.parts.log("warn", "The clock could not be set after a checkpoint", { message });
  }
}

interface RunningCut {
  readonly machine: MachineCut;
  readonly clean: boolean;
}

/**
 * The pause of a live checkpoint: freeze, stop, copy, switch the disk's top, go on.
 *
 * @param takeBack forgets the recorded layer, where it failed before the disk was touched: a workload that does not
 *   freeze must not make the chain longer with every try
 */
async function captureRunning(
  actor: Actor,
  machine: Machine,
  link: GuestLink,
  nextTop: LayerId,
  takeBack: () => Promise<void>,
): Promise<RunningCut> {
  const layerPath = actor.parts.checkpoints.layerPath(actor.id, nextTop);
  let mayBeSwitched = false;
  try {
    link.hold();
    await link.freeze(engineLimits.freezeMs);
    await actor.step("checkpoint.frozen");
    const clean = await flushed(link, engineLimits.flushFrozenMs);
    mayBeSwitched = true;
    const cut = await machine.cut(layerPath);
    await actor.step("checkpoint.layer-switched");
    // The thaw waits in the link when the guest goes on.
    const thawed = link.thaw();
    await Promise.all([machine.run(), thawed]);
    link.release();
    return { machine: cut, clean };
  } catch (error) {
    // Where it has crashed, its own event says so; where its process does not answer, it may yet. Whoever calls
    // before it is tried again connects anew, and that does the same.
    await goOn(actor, machine).catch(() => {
      link.close("its VM process did not answer");
      runAgain(actor);
    });
    // An empty layer that stays recorded costs nothing but length.
    if (!mayBeSwitched) await takeBack().catch(() => undefined);
    throw error;
  }
}

/** Freeze, and flush what came in between. Whatever misses its deadline is marked, not fatal. */
async function quiesce(link: GuestLink | null): Promise<Quiet> {
  if (link === null) return { frozen: false, clean: false };
  link.hold();
  let frozen = true;
  try {
    await link.freeze(engineLimits.freezeMs);
  } catch {
    frozen = false;
  }
  return { frozen, clean: (await flushed(link, engineLimits.flushFrozenMs)) && frozen };
}

async function flushed(link: GuestLink, deadlineMs: number): Promise<boolean> {
  try {
    await link.flush(deadlineMs);
    return true;
  } catch {
    return false;
  }
}

/** Room for all that the capture may write. Packs shrink, but that is not known before. */
function reserve(actor: Actor, pages: number): Promise<{ release(): void }> {
  return actor.parts.checkpoints.reserve(
    actor.id,
    pages * PAGE_BYTES + engineLimits.captureSlackBytes,
  );
}

function cancelIfWanted(actor: Actor): void {
  if (actor.lane.waiting > 0) {
    throw new PerdureError(
      "sleep_cancelled",
      `Agent "${actor.agent.name}" stays awake: a call arrived while it fell asleep`,
    );
  }
}

/** Undoes a sleep before publication: it goes on, awake; or crashed where it cannot. */
async function stayAwake(actor: Actor, machine: Machine): Promise<void> {
  try {
    // Where it is paused for want of room, whoever waits for room makes it answer again.
    if (actor.agent.paused === null) await goOn(actor, machine);
    else await machine.run();
  } catch (error) {
    await crashed(actor, (await whyFailed(actor, machine, "its sleep", error)).message);
    return;
  }
  await actor.save({ state: "awake" });
  await collectOld(actor);
}

async function* fromArray(batches: readonly PageBatch[]): AsyncIterable<PageBatch> {
  for (const batch of batches) {
    yield await Promise.resolve(batch);
  }
}
