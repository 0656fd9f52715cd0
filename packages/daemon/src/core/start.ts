/** Start: a cold start from the newest disk, without memory; a new generation through the same gate. */
import { PerdureError, type GateCheck, type WakeReport } from "@perdure/protocol";
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
  // Once it was let out from there, the disk is newer than what the stop sealed.
  const isNewest = agent.head?.continued === false;
  const sealed = isNewest && row !== null && !row.memory && row.kind === "stop" ? row : null;
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
      await checkLayers(actor, route),
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

/**
 * The layers that the newest checkpoint names, verified. A damaged one refuses a plain start; `recover` is
 * its owner's explicit word, goes on, and says so.
 */
async function checkLayers(actor: Actor, route: "cold-start" | "recover"): Promise<GateCheck> {
  const { agent, parts } = actor;
  const check = "layers";
  if (agent.head === null) {
    return { check, outcome: "not-applicable", detail: "No checkpoint says what they must hold." };
  }
  try {
    const { manifest } = await parts.checkpoints.open(agent.id, agent.head.checkpoint);
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
    if (route === "cold-start") throw error;
    return {
      check,
      outcome: "notice",
      detail: `Booted all the same from a damaged disk: ${message}.`,
    };
  }
}
