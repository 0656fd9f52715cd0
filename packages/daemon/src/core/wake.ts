/**
 * Wake: the plain continuation of the newest checkpoint (I3). A checkpoint that an agent was already
 * let out from is refused here; `recover` is the explicit route.
 */
import {
  PerdureError,
  type CheckpointId,
  type GateCheck,
  type WakeReport,
} from "@perdure/protocol";
import type { Actor } from "./actor.ts";
import type { Lease } from "./agent.ts";
import { arrival } from "./arrival.ts";
import { wantedAdvance } from "./guest-clock.ts";
import type { OpenedCheckpoint } from "./ports/checkpoint-store.ts";
import { assertRecorded, verifiedChecks } from "./opened.ts";
import { raise } from "./raise.ts";
import { startCold } from "./start.ts";

/** Wakes a sleeping agent. Holds the lane. */
export async function wake(actor: Actor): Promise<WakeReport> {
  const { head, name } = actor.agent;
  if (head === null) {
    throw new PerdureError("checkpoint_not_found", `Agent "${name}" has no checkpoint`, {
      hint: `"perdure recover ${name} --from disk" starts it cold from its disk`,
    });
  }
  if (head.continued) {
    throw new PerdureError(
      "checkpoint_continued",
      `Cannot wake agent "${name}" from ${head.checkpoint}: it was already let out from it`,
      { hint: `"perdure recover ${name} --from checkpoint" begins a new, numbered continuation` },
    );
  }
  const continuation = { route: "wake", fallback: "asleep", otherCut: null } as const;
  return continueFrom(actor, head.checkpoint, continuation);
}

export interface Continuation {
  readonly route: "wake" | "recover" | "restore";
  readonly fallback: Lease["fallback"];
  readonly otherCut: WakeReport["otherCut"];
  /** The checkpoint, where it was opened before and its pages were not read. */
  readonly opened?: OpenedCheckpoint | null;
}

/** Raises the agent from a checkpoint of its own with memory. */
export async function continueFrom(
  actor: Actor,
  checkpoint: CheckpointId,
  { route, fallback, otherCut, opened: before = null }: Continuation,
): Promise<WakeReport> {
  const { parts, agent } = actor;
  const opened = before ?? (await parts.checkpoints.open(agent.id, checkpoint));
  const { manifest, state } = opened;
  const row = await parts.state.checkpoint(checkpoint);
  assertRecorded(actor, checkpoint, row, opened);
  if (state === null) {
    if (route !== "restore") return startCold(actor, { fallback, otherCut });
    return startCold(actor, { fallback, route, otherCut, from: row });
  }
  const { advanceClock, checks } = wantedAdvance(route, agent.waitDueMs, manifest.frozen);
  return raise(actor, {
    ...(await arrival(actor, route, manifest.kind)),
    fallback,
    base: state.base,
    state,
    capturedOn: manifest.substrate,
    lowerLayers: manifest.disk.layers.map((layer) => layer.id),
    verified: [...verifiedChecks(opened), checkGeneration(actor, opened), ...checks],
    cut: {
      checkpoint,
      kind: manifest.kind,
      atMs: manifest.createdAtMs,
      memory: true,
      disk: manifest.disk.cleanliness,
    },
    otherCut,
    headAfter: { checkpoint, continued: true },
    advanceClock,
  });
}

/** A checkpoint of a generation that nobody here has given out: the state store has forgotten something (I5). */
function checkGeneration(
  { agent }: Actor,
  { manifest: { generation } }: OpenedCheckpoint,
): GateCheck {
  const check = "generations";
  if (generation <= agent.generation) {
    return { check, outcome: "passed", detail: `The cut is of generation ${generation}.` };
  }
  const detail = `The cut is of generation ${generation}, but only ${agent.generation} were given out: the state store has lost some.`;
  return { check, outcome: "failed", detail };
}
