/** A sandbox is an agent; its id is the agent's without the prefix, so that it is a DNS label and no more. */
import { agentIdSchema, checkpointIdSchema } from "@perdure/protocol";
import { PerdureError } from "@perdure/protocol";
import type { AgentId, CheckpointId } from "@perdure/protocol";
import type { Commands } from "../../core/command.ts";

export function sandboxIdOf(agent: AgentId): string {
  return agent.slice("ag_".length);
}

/** Null where no agent's id is like that. What older clients put behind a hyphen is left out. */
export function agentOf(sandboxId: string): AgentId | null {
  const [body = ""] = sandboxId.split("-", 1);
  return agentIdSchema.safeParse(`ag_${body}`).data ?? null;
}

/** A snapshot is a named checkpoint. */
export function snapshotIdOf(checkpoint: CheckpointId): string {
  return checkpoint.slice("cp_".length);
}

/** Null where no checkpoint's id is like that. A tag behind a colon says nothing more. */
export function checkpointOf(snapshotId: string): CheckpointId | null {
  const [body = ""] = snapshotId.split(":", 1);
  return checkpointIdSchema.safeParse(`cp_${body}`).data ?? null;
}

/** @throws `checkpoint_not_found`, also of a checkpoint that has no name, or none any more */
export async function findSnapshot(
  commands: Pick<Commands, "findCheckpoint">,
  tenant: string,
  snapshotId: string,
) {
  const checkpoint = checkpointOf(snapshotId);
  const found = checkpoint === null ? null : await commands.findCheckpoint({ tenant, checkpoint });
  if (found !== null && found.checkpoint.name !== null) return found;
  const said = snapshotId.slice(0, 64);
  throw new PerdureError("checkpoint_not_found", `Template "${said}" was not found`);
}
