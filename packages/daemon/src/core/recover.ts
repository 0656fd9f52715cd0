/**
 * Recover: the explicit, numbered second continuation after a crash (I3). A crash leaves two cuts, the
 * last checkpoint (memory and disk, older) and the newest disk (no memory). One is taken; the other
 * is kept under a name until its owner drops it, and the report names it (A fsync is never lost silently).
 */
import { PerdureError, type WakeReport } from "@perdure/protocol";
import type { Actor } from "./actor.ts";
import type { CheckpointRow } from "./checkpoint.ts";
import { diskDraft, rowOf } from "./publish.ts";
import { startCold } from "./start.ts";
import { continueFrom } from "./wake.ts";

type Cut = "checkpoint" | "disk";

/** Recovers a crashed agent, or starts a sleeping or stopped one from the cut named. Holds the lane. */
export async function recover(actor: Actor, from: Cut | undefined): Promise<WakeReport> {
  const { agent, parts } = actor;
  const head = agent.head === null ? null : await parts.state.checkpoint(agent.head.checkpoint);
  const cut = chosen(actor, from, head);
  const fallback = fallbackOf(actor);
  if (cut === "checkpoint" && head !== null) {
    const other = agent.state === "failed" ? await keepDisk(actor) : null;
    await actor.step("recover.side-branch-kept");
    return continueFrom(actor, head.id, "recover", fallback, other);
  }
  const other = head?.memory === true ? await keepMemory(actor, head) : null;
  await actor.step("recover.side-branch-kept");
  return startCold(actor, fallback, "recover", other);
}

function chosen(actor: Actor, from: Cut | undefined, head: CheckpointRow | null): Cut {
  const { agent } = actor;
  const wanted = from ?? agent.onCrash;
  if (wanted === "ask") {
    throw new PerdureError(
      "agent_failed",
      `Agent "${agent.name}" crashed and its owner chooses the cut: the last checkpoint or the newest disk`,
      { hint: `"perdure recover ${agent.name} --from checkpoint" or "--from disk"` },
    );
  }
  if (wanted === "checkpoint" && head?.memory !== true) {
    if (from === "checkpoint") {
      throw new PerdureError(
        "checkpoint_not_found",
        `Agent "${agent.name}" has no checkpoint with memory`,
        { hint: `"perdure recover ${agent.name} --from disk" starts it cold from its disk` },
      );
    }
    return "disk";
  }
  return wanted;
}

function fallbackOf(actor: Actor): "asleep" | "stopped" | "failed" {
  const { state } = actor.agent;
  return state === "asleep" || state === "stopped" ? state : "failed";
}

/** Keeps the newest disk as a named checkpoint. The recovery takes the last checkpoint. */
async function keepDisk(actor: Actor): Promise<WakeReport["otherCut"]> {
  const { parts, agent } = actor;
  const name = `crash-${agent.generation}-disk`;
  const rows = await parts.state.checkpoints(agent.id);
  const kept = rows.find((row) => row.name === name);
  if (kept !== undefined) return cutOf(kept, name);
  const draft = await diskDraft(actor, "crash-disk", name, false);
  const published = await parts.checkpoints.write(draft, null, () => undefined);
  const row = rowOf(draft, published, null);
  await actor.save({}, [{ kind: "insert-checkpoint", checkpoint: row }]);
  return cutOf(row, name);
}

/** Keeps the last checkpoint under a name. The recovery takes the newest disk. */
async function keepMemory(actor: Actor, head: CheckpointRow): Promise<WakeReport["otherCut"]> {
  if (head.name !== null) return cutOf(head, head.name);
  const name = `crash-${actor.agent.generation}-memory`;
  const named = { ...head, name };
  await actor.save({}, [
    { kind: "delete-checkpoint", id: head.id },
    { kind: "insert-checkpoint", checkpoint: named },
  ]);
  return cutOf(named, name);
}

function cutOf(row: CheckpointRow, keptAs: string): WakeReport["otherCut"] {
  return {
    checkpoint: row.id,
    kind: row.kind,
    atMs: row.createdAtMs,
    memory: row.memory,
    disk: row.cleanliness,
    keptAs,
  };
}
