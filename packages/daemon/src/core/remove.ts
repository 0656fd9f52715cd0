/** Remove: the row is marked first, the machine ends, the key is destroyed before the rest of the files. */
import type { Actor } from "./actor.ts";
import { eventsOf, recorded } from "./event.ts";
import { endMachine } from "./fail.ts";

/** Removes the agent for good. Its name is free from the mark on. Holds the lane. */
export async function remove(actor: Actor): Promise<void> {
  await actor.save({ state: "removed" });
  await actor.step("remove.marked");
  await endMachine(actor, "remove");
  await actor.parts.hotChildren.releaseAgent(actor.id);
  await actor.step("remove.machine-gone");
  await removeFiles(actor);
}

/** Destroys key and files, then the row. Idempotent; the machine is gone. */
export async function removeFiles(actor: Actor): Promise<void> {
  const { parts, id, agent } = actor;
  await parts.checkpoints.removeAgent(id);
  await actor.step("remove.files-gone");
  const events = eventsOf(agent, null, [], parts.clock.nowMs());
  await parts.state.commit([{ kind: "delete-agent", id }, ...recorded(events)]);
  actor.gone = true;
  parts.imageHolds.leave(actor.agent.image.id);
}
