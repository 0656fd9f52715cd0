/**
 * Fork: another agent goes on from a checkpoint of this one, as a computer of its own (I3): new id, machine-id,
 * boot-id, host name, SSH host keys and entropy, set before anything in it thaws.
 *
 * It shares nothing that the other could take away: layers and a base of the origin's own get names in its
 * folder, memory is read from the origin's packs into its VM once, and its first checkpoint stores it under its own
 * key. Until then it is like a new agent: after a crash its disk is what there is. A fork that dies half-way
 * leaves no agent (its caller was never answered).
 */
import { PerdureError } from "@perdure/protocol";
import type { Actor } from "./actor.ts";
import type { Agent } from "./agent.ts";
import { cutOf, type CheckpointRow } from "./checkpoint.ts";
import { insertAgent, raiseNew } from "./create.ts";
import { findCheckpoint } from "./keep.ts";
import type { OpenedCheckpoint } from "./ports/checkpoint-store.ts";
import type { MemoryBase } from "./ports/substrate.ts";
import { raise } from "./raise.ts";
import { takeCheckpoint } from "./sleep.ts";
import { assertRecorded, verifiedChecks } from "./wake.ts";

/**
 * The checkpoint that is forked: the one wanted (id or name), else of an awake agent one that is taken now, else
 * the newest. Holds the origin's lane. @throws `checkpoint_not_found`, `agent_state`, what `checkpoint` throws
 */
export async function forkPoint(origin: Actor, wanted?: string): Promise<CheckpointRow> {
  if (wanted !== undefined) return findCheckpoint(origin, wanted);
  const { name, state, head } = origin.agent;
  if (state === "awake") return takeCheckpoint(origin, { kind: "named", name: null });
  const newest = head?.continued === false ? head.checkpoint : null;
  const row = newest === null ? null : await origin.parts.state.checkpoint(newest);
  if (row !== null) return row;
  throw new PerdureError(
    "agent_state",
    `Cannot fork agent "${name}": state is ${state}, and no checkpoint is as new as it is`,
    { hint: `Name one that "perdure checkpoints ${name}" lists` },
  );
}

/** Stores the row of the fork: its name is taken. @throws `agent_exists` */
export function prepareFork(
  { agent, parts }: Actor,
  { layers }: CheckpointRow,
  name: string,
): Promise<Agent> {
  const { tenant, image, template, shape, onCrash, idleAfterMs, checkpointEveryMs } = agent;
  const settings = { onCrash, idleAfterMs, checkpointEveryMs };
  return insertAgent(parts, { name, tenant, image, template, shape, ...settings, disk: layers });
}

/** Makes the fork's files and wakes it; on failure nothing of it is left. Holds the origin's lane. */
export function wakeFork(fork: Actor, origin: Actor, row: CheckpointRow): Promise<void> {
  return raiseNew(fork, () => raiseFork(fork, origin, row));
}

async function raiseFork(fork: Actor, origin: Actor, row: CheckpointRow): Promise<void> {
  const { parts, agent } = fork;
  await fork.step("fork.inserted");
  const opened = await parts.checkpoints.open(origin.id, row.id);
  assertRecorded(origin, row.id, row, opened);
  await parts.checkpoints.createAgent(fork.id, agent.tenant);
  for (const layer of row.layers) {
    const path = parts.checkpoints.layerPath(origin.id, layer);
    await parts.checkpoints.linkLayer(fork.id, layer, path);
  }
  const base = await ownBase(fork, opened);
  await fork.step("fork.folder-made");
  const { manifest, state } = opened;
  await raise(fork, {
    route: "fork",
    fallback: "creating",
    base,
    state,
    capturedOn: state === null ? null : manifest.substrate,
    lowerLayers: row.layers,
    identity: await parts.identities.make(agent.name),
    verified: verifiedChecks(opened),
    cut: cutOf(row),
    otherCut: null,
    headAfter: null,
  });
}

/** The origin's memory base; one of its own under a name of the fork's. */
async function ownBase(fork: Actor, { state }: OpenedCheckpoint): Promise<MemoryBase> {
  const base = state?.base ?? { kind: "zero" };
  if (base.kind !== "own") return base;
  const { checkpoints } = fork.parts;
  const { memoryBytes } = fork.agent.shape;
  await checkpoints.linkBase(fork.id, { ...base, bytes: memoryBytes });
  return { ...base, path: checkpoints.ownBasePath(fork.id, base.digest) };
}
