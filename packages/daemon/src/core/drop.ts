/** Drop: forgetting a checkpoint that was kept under a name, by its owner's word. */
import { PerdureError } from "@perdure/protocol";
import type { Actor } from "./actor.ts";
import { collectOld } from "./collect.ts";
import { findCheckpoint } from "./keep.ts";

/**
 * The newest checkpoint only loses its name: the agent stands on it, until a newer one takes its place.
 * @param wanted id or name. Holds the lane. @throws `checkpoint_not_found`, `agent_state`
 */
export async function drop(actor: Actor, wanted: string): Promise<void> {
  const { agent } = actor;
  const row = await findCheckpoint(actor, wanted);
  if (row.id === agent.head?.checkpoint) {
    if (row.name === null) {
      throw new PerdureError(
        "agent_state",
        `Cannot drop checkpoint ${row.id}: it is the newest of agent "${agent.name}", which stands on it`,
        { hint: "It goes by itself when a newer one takes its place" },
      );
    }
    await actor.save({}, [{ kind: "update-checkpoint", checkpoint: { ...row, name: null } }]);
    return;
  }
  await actor.parts.hotChildren.releaseCheckpoint(row.id);
  await actor.save({}, [{ kind: "delete-checkpoint", id: row.id }]);
  await collectOld(actor);
}
