/**
 * Fork: another agent goes on from a checkpoint of this one, as a computer of its own (I3): new id, machine-id,
 * boot-id, host name, SSH host keys and entropy, set before anything in it thaws.
 *
 * It shares nothing that the other could take away: layers and a base of the origin's own get names in its
 * folder, memory is read from the origin's packs into its VM once, and its first checkpoint stores it under its own
 * key. Until then it is like a new agent: after a crash its disk is what there is. A fork that dies half-way
 * leaves no agent (its caller was never answered).
 */
import { PerdureError, type EgressPolicy } from "@perdure/protocol";
import type { Actor } from "./actor.ts";
import type { Agent } from "./agent.ts";
import type { OwnerWish } from "./command.ts";
import { cutOf, type CheckpointRow } from "./checkpoint.ts";
import { insertAgent, raiseNew } from "./create.ts";
import { makeForkFiles, type CutSource } from "./fork-files.ts";
import { checksOf, type HotChild } from "./hot-children.ts";
import { findCheckpoint } from "./keep.ts";
import { verifiedChecks } from "./opened.ts";
import { raise, type Origin } from "./raise.ts";
import { ownerFacts } from "./owner.ts";
import { sizeWanted } from "./size.ts";
import { takeCheckpoint } from "./sleep.ts";

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

export interface WantedFork {
  readonly name: string;
  /** What it does not have from its origin. */
  readonly owner: OwnerWish;
  /** Undefined: nothing gets out, whatever its origin may. */
  readonly egress: EgressPolicy | undefined;
}

/** Stores the row of the fork: its name is taken. @throws `agent_exists` */
export function prepareFork(
  { origin: { agent, parts }, row: { layers } }: CutSource,
  { name, owner, egress }: WantedFork,
  hot: HotChild | null,
): Promise<Agent> {
  const { tenant, image, template, shape, onCrash, start, idleAfterMs, checkpointEveryMs } = agent;
  const begins = start === undefined ? {} : { start };
  const settings = { onCrash, ...begins, idleAfterMs, checkpointEveryMs };
  const id = hot === null ? {} : { id: hot.owner };
  return insertAgent(parts, {
    ...id,
    name,
    tenant,
    image,
    template,
    shape,
    sizeWanted: sizeWanted(agent),
    ...settings,
    ...ownerFacts(agent, owner),
    ...(egress === undefined ? {} : { egress }),
    disk: layers,
  });
}

/** Makes the fork's files and wakes it; on failure nothing of it is left. Holds the origin's lane. */
export function wakeFork(fork: Actor, source: CutSource, hot: HotChild | null): Promise<void> {
  return raiseNew(fork, async () => {
    await fork.step("fork.inserted");
    const identity = fork.parts.identities.make(fork.agent.name);
    identity.catch(() => undefined); // Awaited when the files are there.
    const start = hot === null ? await fromCheckpoint(fork, source) : fromHotChild(hot);
    await fork.step("fork.folder-made");
    await raise(fork, {
      ...start,
      route: "fork",
      fallback: "creating",
      lowerLayers: source.row.layers,
      identity: await identity,
      cut: cutOf(source.row),
      cutAgent: source.origin.id,
      otherCut: null,
      headAfter: null,
      advanceClock: false,
    });
  });
}

type Start = Pick<Origin, "base" | "state" | "capturedOn" | "verified" | "hot">;

async function fromCheckpoint(fork: Actor, source: CutSource): Promise<Start> {
  const { opened, state, base } = await makeForkFiles(source, fork.id);
  const capturedOn = state === null ? null : opened.manifest.substrate;
  return { base, state, capturedOn, verified: verifiedChecks(opened), hot: null };
}

function fromHotChild(hot: HotChild): Start {
  return { base: hot.base, state: null, capturedOn: null, verified: checksOf(hot), hot };
}
