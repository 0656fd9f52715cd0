/**
 * Forgetting: after a newer checkpoint is published (I2), those that nobody named and nothing stands
 * on are dropped from the store, then their files are collected.
 */
import type { Actor } from "./actor.ts";
import { eventsOf, recorded } from "./event.ts";
import { PerdureError } from "@perdure/protocol";

/** As `collect`. What is published stays so where it fails; the next collection finds what this one left. */
export async function collectOld(actor: Actor): Promise<void> {
  try {
    await collect(actor);
  } catch (error) {
    actor.parts.log("warn", "Collecting old checkpoints failed", {
      agent: actor.id,
      message: PerdureError.from(error).message,
    });
  }
}

/**
 * Drops unnamed checkpoints other than the head, and every file that is reachable no more. Holds the lane.
 * Returns the bytes that were freed.
 */
export async function collect(actor: Actor): Promise<number> {
  const { parts, agent } = actor;
  const rows = await parts.state.checkpoints(agent.id);
  const kept = rows.filter((row) => row.name !== null || row.id === agent.head?.checkpoint);
  const dropped = rows.filter((row) => !kept.includes(row));
  if (dropped.length > 0) {
    const changes = dropped.map(({ id }) => ({ kind: "delete-checkpoint", id }) as const);
    const events = eventsOf(agent, agent, changes, parts.clock.nowMs());
    await parts.state.commit([...changes, ...recorded(events)]);
  }
  for (const { id } of dropped) await parts.hotChildren.releaseCheckpoint(id);
  const hot = parts.hotChildren.filesOf(agent.id);
  const freedBytes = await parts.checkpoints.collect(
    agent.id,
    kept.map((row) => row.id),
    [...actor.newestLayers(), ...hot.layers],
    [agent.lease?.base, ...hot.bases].flatMap((base) =>
      base?.kind === "own" && base.digest !== null ? [base.digest] : [],
    ),
  );
  const storedBytes = await parts.checkpoints.storedBytes(agent.id);
  if (storedBytes !== agent.storedBytes) await actor.save({ storedBytes });
  return freedBytes;
}
