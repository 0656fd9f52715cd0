/** A sandbox is an agent; its id is the agent's without the prefix, so that it is a DNS label and no more. */
import { agentIdSchema, checkpointIdSchema } from "@perdure/protocol";
import type { AgentId, CheckpointId } from "@perdure/protocol";

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
