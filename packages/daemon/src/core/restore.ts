/**
 * Restore: back to a checkpoint that is kept, under a new generation (I3). What the agent is now is kept
 * first, under a name that the report tells, so that nothing that it wrote or answered is lost:
 *
 * | state | what is kept | as |
 * |---|---|---|
 * | awake | it is put to sleep; the checkpoint of that | `before-restore-N` |
 * | asleep, stopped | the newest checkpoint, or the newest disk where that is newer | `before-restore-N` |
 * | failed | the newest disk, and the last memory | `crash-N-disk`, `crash-N-memory` |
 *
 * N is the generation at that moment. Going back to the newest checkpoint itself leaves nothing to keep. A
 * checkpoint without a name that an awake agent goes back to gets one (`restored-N`): the sleep would forget it.
 */
import { PerdureError, type WakeReport } from "@perdure/protocol";
import type { Actor } from "./actor.ts";
import { arrival } from "./arrival.ts";
import { cutOf, type CheckpointRow } from "./checkpoint.ts";
import { collectOld } from "./collect.ts";
import { assertCompatible } from "./compatibility.ts";
import { keepHotChildren } from "./hot-child.ts";
import { checksOf, type HotChild } from "./hot-children.ts";
import { findCheckpoint, keepCheckpoint, keepDisk, settledBefore } from "./keep.ts";
import { openRecorded } from "./opened.ts";
import type { OpenedCheckpoint } from "./ports/checkpoint-store.ts";
import { raise, type Origin } from "./raise.ts";
import { sleep } from "./sleep.ts";
import { continueFrom } from "./wake.ts";

/** @param wanted id or name. Holds the lane. @throws `checkpoint_not_found`, what `open` throws */
export async function restore(actor: Actor, wanted: string): Promise<WakeReport> {
  const row = await findCheckpoint(actor, wanted);
  const opened = await openHere(actor, row);
  if (actor.agent.state !== "awake") return goBack(actor, row, opened);
  await keepCheckpoint(actor, row, `restored-${actor.agent.generation}`);
  await sleepMeanwhile(actor, row, opened);
  try {
    // Pages of an opened checkpoint can be read once.
    return await goBack(actor, row, null);
  } catch (error) {
    throw withWayOn(actor, error);
  } finally {
    // Before the let-out nobody had the time.
    await collectOld(actor);
  }
}

/** From rest. */
async function goBack(
  actor: Actor,
  row: CheckpointRow,
  opened: OpenedCheckpoint | null,
): Promise<WakeReport> {
  const otherCut = await keepPresent(actor, row);
  await actor.step("restore.present-kept");
  const fallback = settledBefore(actor.agent.state);
  const { hotChildren } = actor.parts;
  if (hotChildren.ready(row.id, "restore") > 0) {
    // Before one is taken: what fails here must not cost it.
    const arrived = await arrival(actor, "restore", row.kind);
    const hot = await hotChildren.take(row.id, "restore");
    if (hot !== null) return fromHotChild(actor, row, hot, { ...arrived, fallback, otherCut });
  }
  return continueFrom(actor, row.id, { route: "restore", fallback, otherCut, opened });
}

/**
 * While the agent falls asleep a hot child of the checkpoint is made, unless there is one: what is left then is
 * its let-out. Where none can be made, the way back is that of any restore.
 */
async function sleepMeanwhile(
  actor: Actor,
  row: CheckpointRow,
  opened: OpenedCheckpoint | null,
): Promise<void> {
  const { hotChildren, log } = actor.parts;
  const isMade =
    opened === null || !row.memory || !row.frozen
      ? Promise.resolve(false)
      : keepHotChildren(actor, row, { use: "restore", count: 1, opened }).then(
          () => true,
          (error: unknown) => {
            const { code, message } = PerdureError.from(error);
            const facts = { agent: actor.id, code, message };
            log("debug", "No machine was made ready for a restore", facts);
            return false;
          },
        );
  try {
    await sleep(actor, { cancellable: false, nextReady: isMade.then(() => undefined) });
  } catch (error) {
    if (await isMade) await (await hotChildren.take(row.id, "restore"))?.end();
    throw error;
  }
}

async function fromHotChild(
  actor: Actor,
  row: CheckpointRow,
  hot: HotChild,
  arrived: Pick<Origin, "route" | "identity" | "fallback" | "otherCut">,
): Promise<WakeReport> {
  return raise(actor, {
    ...arrived,
    base: hot.base,
    state: null,
    hot,
    capturedOn: null,
    lowerLayers: row.layers,
    verified: checksOf(hot),
    cut: cutOf(row),
    headAfter: { checkpoint: row.id, continued: true },
    advanceClock: false,
  });
}

/** Nothing is disturbed for a checkpoint that cannot be opened here. Null: a machine holds its state already. */
async function openHere(actor: Actor, row: CheckpointRow): Promise<OpenedCheckpoint | null> {
  const { agent, parts } = actor;
  if (parts.hotChildren.ready(row.id, "restore") > 0) return null;
  const opened = await openRecorded(actor, row);
  const { manifest, state } = opened;
  if (state !== null) {
    const spec = await actor.spec(state.base, manifest.substrate.shape);
    assertCompatible(agent.name, manifest.substrate, await parts.substrate.facts(spec));
  }
  return opened;
}

async function keepPresent(actor: Actor, wanted: CheckpointRow): Promise<WakeReport["otherCut"]> {
  const { agent, parts } = actor;
  const { head, generation, state } = agent;
  const newest = head === null ? null : await parts.state.checkpoint(head.checkpoint);
  if (state !== "failed" && newest !== null && head?.continued === false) {
    if (newest.id === wanted.id) return null;
    return keepCheckpoint(actor, newest, `before-restore-${generation}`);
  }
  if (state !== "failed") return keepDisk(actor, `before-restore-${generation}`);
  if (newest?.memory === true && newest.id !== wanted.id) {
    await keepCheckpoint(actor, newest, `crash-${generation}-memory`);
  }
  return keepDisk(actor, `crash-${generation}-disk`);
}

/** The agent was awake, and sleeps now: its caller is told, whatever else went wrong. */
function withWayOn({ agent }: Actor, error: unknown): PerdureError {
  const { code, message, details } = PerdureError.from(error);
  if (agent.state !== "asleep") return PerdureError.from(error);
  return new PerdureError(code, message, {
    hint: `Agent "${agent.name}" is asleep as it was: "perdure wake ${agent.name}" goes on from there`,
    details,
    cause: error,
  });
}
