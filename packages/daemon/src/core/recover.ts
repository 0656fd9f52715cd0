/**
 * Recover: the explicit, numbered second continuation after a crash (I3). A crash leaves two cuts, the
 * last checkpoint (memory and disk, older) and the newest disk (no memory). One is taken; the other
 * is kept under a name until its owner drops it, and the report names it (A fsync is never lost silently).
 */
import { PerdureError, type WakeReport } from "@perdure/protocol";
import type { Actor } from "./actor.ts";
import type { CheckpointRow } from "./checkpoint.ts";
import { keepCheckpoint, keepDisk, settledBefore } from "./keep.ts";
import { startCold } from "./start.ts";
import { continueFrom } from "./wake.ts";

type Cut = "checkpoint" | "disk";

/** Recovers a crashed agent, or starts a sleeping or stopped one from the cut named. Holds the lane. */
export async function recover(actor: Actor, from: Cut | undefined): Promise<WakeReport> {
  const { agent, parts } = actor;
  const head = agent.head === null ? null : await parts.state.checkpoint(agent.head.checkpoint);
  const cut = chosen(actor, from, head);
  const fallback = settledBefore(agent.state);
  const keptAs = `crash-${agent.generation}`;
  if (cut === "checkpoint" && head !== null) {
    const otherCut = agent.state === "failed" ? await keepDisk(actor, `${keptAs}-disk`) : null;
    await actor.step("recover.side-branch-kept");
    return continueFrom(actor, head.id, { route: "recover", fallback, otherCut });
  }
  const other =
    head?.memory === true ? await keepCheckpoint(actor, head, `${keptAs}-memory`) : null;
  await actor.step("recover.side-branch-kept");
  return startCold(actor, { fallback, route: "recover", otherCut: other });
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
