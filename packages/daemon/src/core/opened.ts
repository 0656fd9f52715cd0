/** An opened checkpoint: whether it is the one that counts, and what a wake report says was verified of it. */
import { PerdureError, type CheckpointId, type GateCheck } from "@perdure/protocol";
import type { Actor } from "./actor.ts";
import type { CheckpointRow } from "./checkpoint.ts";
import type { OpenedCheckpoint } from "./ports/checkpoint-store.ts";

/** The manifest must be the very one that the state store published. */
export function assertRecorded(
  actor: Actor,
  checkpoint: CheckpointId,
  row: CheckpointRow | null,
  opened: OpenedCheckpoint,
): asserts row is CheckpointRow {
  const { manifest } = opened;
  if (row === null) {
    throw new PerdureError("checkpoint_not_found", `Checkpoint ${checkpoint} is not recorded`);
  }
  if (
    manifest.agent !== actor.id ||
    manifest.checkpoint !== checkpoint ||
    opened.digest !== row.digest
  ) {
    throw new PerdureError(
      "checkpoint_digest_mismatch",
      `The manifest of ${checkpoint} is not the one that was published`,
      { details: { part: "manifest" } },
    );
  }
}

/** Opens a checkpoint of the agent. @throws `checkpoint_digest_mismatch`, what `open` throws */
export async function openRecorded(actor: Actor, row: CheckpointRow): Promise<OpenedCheckpoint> {
  const opened = await actor.parts.checkpoints.open(actor.id, row.id);
  assertRecorded(actor, row.id, row, opened);
  return opened;
}

export function verifiedChecks(opened: OpenedCheckpoint): GateCheck[] {
  const { manifest } = opened;
  const passed = (check: string, detail: string): GateCheck => ({
    check,
    outcome: "passed",
    detail,
  });
  return [
    passed("manifest", "Digest and signature are right."),
    passed("devices", "The device state has its digest."),
    passed(
      "memory",
      `${manifest.memory?.storedPages ?? 0} stored pages, each verified as it is read.`,
    ),
    passed(
      "layers",
      `${manifest.disk.layers.length} disk layers are the files that were verified.`,
    ),
    passed("substrate", "This host offers what the checkpoint was captured on."),
    manifest.frozen
      ? passed("cut", "The workload was frozen at the cut.")
      : {
          check: "cut",
          outcome: "notice",
          detail:
            "The workload did not freeze in time; the cut is one instant of a running system.",
        },
  ];
}
