/** Start: a cold start from the newest disk, without memory; a new generation through the same gate. */
import { PerdureError, type WakeReport } from "@perdure/protocol";
import type { Actor } from "./actor.ts";
import type { Lease } from "./agent.ts";
import { raise } from "./raise.ts";

/** Boots the agent from its newest disk. Holds the lane. */
export async function startCold(
  actor: Actor,
  fallback: Lease["fallback"],
  route: "cold-start" | "recover" = "cold-start",
  otherCut: WakeReport["otherCut"] = null,
): Promise<WakeReport> {
  const { agent, parts } = actor;
  if (agent.disk === null) {
    throw new PerdureError("agent_state", `Cannot start agent "${agent.name}": it has no disk`);
  }
  const row = agent.head === null ? null : await parts.state.checkpoint(agent.head.checkpoint);
  const sealed = row !== null && !row.memory && row.kind === "stop" ? row : null;
  return raise(actor, {
    route,
    fallback,
    base: { kind: "zero" },
    state: null,
    capturedOn: null,
    lowerLayers: agent.disk,
    identity: null,
    verified: [
      {
        check: "memory",
        outcome: "not-applicable",
        detail: "Booted from the disk; nothing in memory was carried over.",
      },
    ],
    cut: {
      checkpoint: sealed?.id ?? null,
      kind: sealed === null ? "crash-disk" : "stop",
      atMs: sealed?.createdAtMs ?? agent.changedAtMs,
      memory: false,
      disk: sealed?.cleanliness ?? "crash-consistent",
    },
    otherCut,
    // After a recovery from the disk an older memory is a side branch, no longer the head.
    headAfter: sealed === null ? null : { checkpoint: sealed.id, continued: true },
  });
}
