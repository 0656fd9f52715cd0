/**
 * Export: the agent as one file. It is opened while the agent's lane is held, so that all of it is of one
 * moment, and read afterwards: nobody waits for a slow reader, and nothing that is collected meanwhile is
 * missing from it.
 */
import { PerdureError } from "@perdure/protocol";
import type { Actor } from "./actor.ts";
import type { CheckpointRow } from "./checkpoint.ts";
import type { Export } from "./transfer-command.ts";
import { pickCheckpoint } from "./keep.ts";
import { ruleFor } from "./legality.ts";
import { engineLimits } from "./limit.ts";
import type { AgentExport, ExportedImage } from "./ports/export-file.ts";

/** Holds the lane until the file is open. @throws `agent_state`, `checkpoint_not_found`, `too_large` */
export async function openExport(actor: Actor, request: Export): Promise<AgentExport> {
  const { agent, parts } = actor;
  ruleFor("export", agent);
  const rows = await parts.state.checkpoints(agent.id);
  const head = headOf(actor, rows, request.checkpoint);
  const kept = rows.filter(({ id, name }) => id === head.id || (request.all && name !== null));
  if (kept.length > engineLimits.exportCheckpointsMax) {
    throw new PerdureError(
      "too_large",
      `Cannot export ${kept.length} checkpoints of agent "${agent.name}" at once: ${engineLimits.exportCheckpointsMax} are the most`,
      { hint: "Export without --all, or drop some" },
    );
  }
  const { id, name, image, shape, template, tenant } = agent;
  const { onCrash, start, idleAfterMs, checkpointEveryMs } = agent;
  const begins = start === undefined ? {} : { start };
  const settings = { onCrash, ...begins, idleAfterMs, checkpointEveryMs };
  return parts.checkpoints.openExport({
    agent: { id, name, image, shape, template, ...settings },
    tenant,
    checkpoints: kept,
    head: head.id,
    image: request.withImage ? await imageOf(actor) : null,
    passphrase: request.passphrase,
  });
}

/** The checkpoint wanted; else the newest, where it is as new as the agent. */
function headOf(
  { agent }: Actor,
  rows: readonly CheckpointRow[],
  wanted: string | undefined,
): CheckpointRow {
  if (wanted !== undefined) return pickCheckpoint(agent, rows, wanted);
  const { name, state, head } = agent;
  const newest = rows.find(({ id }) => id === head?.checkpoint);
  if (state !== "awake" && newest !== undefined && head?.continued === false) return newest;
  throw new PerdureError(
    "agent_state",
    `Cannot export agent "${name}": state is ${state}, and no checkpoint is as new as it is`,
    {
      hint:
        state === "awake"
          ? `"perdure sleep ${name}" first, or name a checkpoint that is kept (--checkpoint)`
          : `Name a checkpoint that "perdure checkpoints ${name}" lists (--checkpoint)`,
    },
  );
}

async function imageOf({ agent, parts }: Actor): Promise<ExportedImage> {
  const { kernel, initramfs, rootfs } = await parts.images.resolve(agent.image.id);
  const description = await parts.images.describe(agent.image.id);
  return { description, kernel, initramfs, rootfs };
}
