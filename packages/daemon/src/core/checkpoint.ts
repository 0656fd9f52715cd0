/** A checkpoint as the state store knows it: the row that makes it count. */
import type {
  AgentId,
  CheckpointId,
  CheckpointKind,
  CheckpointView,
  Digest,
  LayerId,
  WakeReport,
} from "@perdure/protocol";

export interface CheckpointRow {
  readonly id: CheckpointId;
  readonly agent: AgentId;
  readonly kind: CheckpointKind;
  readonly name: string | null;
  readonly generation: number;
  readonly createdAtMs: number;
  readonly parent: CheckpointId | null;
  /** Address: SHA-256 of the manifest. */
  readonly digest: Digest;
  readonly memory: boolean;
  readonly frozen: boolean;
  readonly cleanliness: "clean" | "crash-consistent";
  /** Disk layers it needs, lowest first. */
  readonly layers: readonly LayerId[];
  readonly addedBytes: number;
  readonly pauseMs: number | null;
}

/** What a wake report says of it. */
export function cutOf(row: CheckpointRow): WakeReport["cut"] {
  return {
    checkpoint: row.id,
    kind: row.kind,
    atMs: row.createdAtMs,
    memory: row.memory,
    disk: row.cleanliness,
  };
}

export function checkpointView(row: CheckpointRow): CheckpointView {
  return {
    id: row.id,
    kind: row.kind,
    name: row.name,
    generation: row.generation,
    createdAtMs: row.createdAtMs,
    parent: row.parent,
    memory: row.memory,
    frozen: row.frozen,
    disk: row.cleanliness,
    addedBytes: row.addedBytes,
    pauseMs: row.pauseMs,
  };
}
