/** Start: a cold start from a disk, without memory; a new generation through the same gate. */
import {
  PerdureError,
  type CheckpointId,
  type GateCheck,
  type WakeReport,
} from "@perdure/protocol";
import type { Actor } from "./actor.ts";
import type { Head, Lease } from "./agent.ts";
import { arrival } from "./arrival.ts";
import { cutOf, type CheckpointRow } from "./checkpoint.ts";
import { raise } from "./raise.ts";

export interface ColdStart {
  readonly fallback: Lease["fallback"];
  readonly route?: "cold-start" | "recover" | "restore";
  readonly otherCut?: WakeReport["otherCut"];
  /** The checkpoint whose disk is booted; absent: the newest disk. */
  readonly from?: CheckpointRow;
}

type Source = Pick<Parameters<typeof raise>[1], "lowerLayers" | "cut" | "headAfter">;

/** Boots the agent from a disk of its own. Holds the lane. */
export async function startCold(
  actor: Actor,
  { fallback, route = "cold-start", otherCut = null, from }: ColdStart,
): Promise<WakeReport> {
  const { head } = actor.agent;
  const source = from === undefined ? await newestDisk(actor) : diskOf(from);
  const described = from?.id ?? head?.checkpoint ?? null;
  return raise(actor, {
    ...source,
    ...(await arrival(actor, route, from?.kind ?? null)),
    fallback,
    base: { kind: "zero" },
    state: null,
    capturedOn: null,
    advanceClock: false,
    verified: [
      {
        check: "memory",
        outcome: "not-applicable",
        detail: "Booted from the disk; nothing in memory was carried over.",
      },
      await checkLayers(actor, described, route),
    ],
    otherCut,
  });
}

function diskOf(row: CheckpointRow): Source {
  const headAfter: Head = { checkpoint: row.id, continued: true };
  return { lowerLayers: row.layers, cut: cutOf(row), headAfter };
}

async function newestDisk({ agent, parts }: Actor): Promise<Source> {
  if (agent.disk === null) {
    throw new PerdureError("agent_state", `Cannot start agent "${agent.name}": it has no disk`);
  }
  const row = agent.head === null ? null : await parts.state.checkpoint(agent.head.checkpoint);
  // Once it was let out from there, the disk is newer than what the stop sealed.
  const isNewest = agent.head?.continued === false;
  const isSealed = row?.kind === "stop" || row?.kind === "import";
  if (isNewest && row !== null && isSealed) {
    const { lowerLayers, cut, headAfter } = diskOf(row);
    // After a start from the disk a memory that was not taken is a side branch, no longer the head.
    if (row.memory) return { lowerLayers, cut: { ...cut, memory: false }, headAfter: null };
    return { lowerLayers: agent.disk, cut, headAfter };
  }
  return {
    lowerLayers: agent.disk,
    cut: {
      checkpoint: null,
      kind: "crash-disk",
      atMs: agent.changedAtMs,
      memory: false,
      // Of an agent that sleeps, what its sleep flushed.
      disk:
        isNewest && row?.layers.join() === agent.disk.join() ? row.cleanliness : "crash-consistent",
    },
    // After a recovery from the disk an older memory is a side branch, no longer the head.
    headAfter: null,
  };
}

/**
 * The layers that a checkpoint names, verified. A damaged one refuses a start; `recover` is its owner's
 * word that anything is better than nothing, goes on, and says so.
 */
async function checkLayers(
  { agent, parts }: Actor,
  described: CheckpointId | null,
  route: ColdStart["route"],
): Promise<GateCheck> {
  const check = "layers";
  if (described === null) {
    return { check, outcome: "not-applicable", detail: "No checkpoint says what they must hold." };
  }
  try {
    const { manifest } = await parts.checkpoints.open(agent.id, described);
    const known = manifest.disk.layers.length;
    return {
      check,
      outcome: "passed",
      detail: `${known} disk layers are the files that were verified.`,
    };
  } catch (error) {
    const { message, details } = PerdureError.from(error);
    if (details["part"] !== "layer") {
      return { check, outcome: "not-applicable", detail: `Could not be checked: ${message}.` };
    }
    if (route !== "recover" || details["check"] === "presence") throw error;
    return {
      check,
      outcome: "notice",
      detail: `Booted all the same from a damaged disk: ${message}.`,
    };
  }
}
