/**
 * Keeping: a cut that another is taken in place of gets a name, and stays until its owner drops it (A
 * fsync is never lost silently). Names that begin like these are not given to an owner's own checkpoints.
 */
import { PerdureError, type AgentState, type WakeReport } from "@perdure/protocol";
import type { Actor } from "./actor.ts";
import type { Agent, Lease } from "./agent.ts";
import { cutOf, type CheckpointRow } from "./checkpoint.ts";
import { diskDraft, rowOf } from "./publish.ts";

const ownNames = /^(crash|before-restore|restored)-[0-9]/;

/** @throws `bad_request` for a name as Perdure gives them, `checkpoint_exists` for one that is taken */
export async function assertNameFree(actor: Actor, name: string): Promise<void> {
  if (ownNames.test(name)) {
    throw new PerdureError(
      "bad_request",
      `name: "${name}" is a name that Perdure gives to cuts which it keeps by itself`,
      { hint: "Choose a name that does not begin so" },
    );
  }
  const rows = await actor.parts.state.checkpoints(actor.id);
  if (!rows.some((row) => row.name === name)) return;
  throw new PerdureError(
    "checkpoint_exists",
    `Cannot name a checkpoint "${name}": agent "${actor.agent.name}" has one of that name`,
    { hint: `"perdure drop ${actor.agent.name} ${name}" frees the name` },
  );
}

/** A kept checkpoint of the agent, by id or name. @throws `checkpoint_not_found` */
export async function findCheckpoint(actor: Actor, wanted: string): Promise<CheckpointRow> {
  return pickCheckpoint(actor.agent, await actor.parts.state.checkpoints(actor.id), wanted);
}

/** Among the agent's rows, the one of this id or name. @throws `checkpoint_not_found` */
export function pickCheckpoint(
  { name }: Agent,
  rows: readonly CheckpointRow[],
  wanted: string,
): CheckpointRow {
  const found = rows.find((row) => row.id === wanted || row.name === wanted);
  if (found !== undefined) return found;
  throw new PerdureError("checkpoint_not_found", `Agent "${name}" has no checkpoint "${wanted}"`, {
    hint: `"perdure checkpoints ${name}" lists them`,
  });
}

/** Where an attempt that begins in `state` falls back to. */
export function settledBefore(state: AgentState): Exclude<Lease["fallback"], "creating"> {
  return state === "asleep" || state === "stopped" ? state : "failed";
}

/** Keeps the newest disk as a checkpoint of its own, unless one of that very disk is kept already. */
export async function keepDisk(actor: Actor, name: string): Promise<WakeReport["otherCut"]> {
  const { parts, agent } = actor;
  const rows = await parts.state.checkpoints(agent.id);
  const newest = actor.newestLayers().join();
  const kept = rows.find((row) => !row.memory && row.name !== null && row.layers.join() === newest);
  if (kept !== undefined) return { ...cutOf(kept), keptAs: kept.name ?? name };
  const draft = await diskDraft(actor, "crash-disk", name, false);
  const published = await parts.checkpoints.write(draft, null, () => undefined);
  const row = rowOf(draft, published, null);
  await actor.save({}, [{ kind: "insert-checkpoint", checkpoint: row }]);
  return { ...cutOf(row), keptAs: name };
}

/** Keeps a checkpoint that is there, under `name` where it has none. Idempotent. */
export async function keepCheckpoint(
  actor: Actor,
  row: CheckpointRow,
  name: string,
): Promise<WakeReport["otherCut"]> {
  if (row.name !== null) return { ...cutOf(row), keptAs: row.name };
  const named = { ...row, name };
  await actor.save({}, [{ kind: "update-checkpoint", checkpoint: named }]);
  return { ...cutOf(named), keptAs: name };
}
