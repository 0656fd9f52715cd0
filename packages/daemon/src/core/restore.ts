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
 * N is the generation that ended so. Going back to the newest checkpoint itself leaves nothing to keep.
 */
import type { WakeReport } from "@perdure/protocol";
import type { Actor } from "./actor.ts";
import type { CheckpointRow } from "./checkpoint.ts";
import { findCheckpoint, keepCheckpoint, keepDisk, settledBefore } from "./keep.ts";
import { sleep } from "./sleep.ts";
import { continueFrom } from "./wake.ts";

/** @param wanted id or name. Holds the lane. @throws `checkpoint_not_found`, what `open` throws */
export async function restore(actor: Actor, wanted: string): Promise<WakeReport> {
  const row = await findCheckpoint(actor, wanted);
  // Nothing is disturbed for a checkpoint that cannot be opened.
  await actor.parts.checkpoints.open(actor.id, row.id);
  if (actor.agent.state === "awake") await sleep(actor, { cancellable: false });
  const otherCut = await keepPresent(actor, row);
  await actor.step("restore.present-kept");
  const fallback = settledBefore(actor.agent.state);
  return continueFrom(actor, row.id, "restore", fallback, otherCut);
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
