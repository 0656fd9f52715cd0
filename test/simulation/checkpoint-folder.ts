/** What the simulated checkpoint store has on its disk: it outlives every daemon. */
import { createHash } from "node:crypto";
import type { AgentId, CheckpointId, Digest, LayerId, Manifest } from "@perdure/protocol";
import type { MemoryBase } from "../../packages/daemon/src/core/ports/substrate.ts";

export interface StoredCheckpoint {
  readonly manifest: Manifest;
  readonly digest: Digest;
  /** Null where only the disk was kept. */
  readonly state: {
    readonly base: MemoryBase;
    /** Index → page, and the digest of each page. */
    readonly pages: ReadonlyMap<number, { readonly bytes: Uint8Array; readonly digest: string }>;
    readonly devices: Uint8Array;
  } | null;
}

export interface AgentFolder {
  readonly tenant: string;
  readonly layers: Set<LayerId>;
  readonly checkpoints: Map<CheckpointId, StoredCheckpoint>;
  /** Own bases, by digest. */
  readonly bases: Set<Digest>;
  /** Files of a write that is under way, or died. */
  readonly partial: Set<string>;
}

export class CheckpointFolder {
  readonly agents = new Map<AgentId, AgentFolder>();
  /** Room on the disk that is left. */
  freeBytes = Number.MAX_SAFE_INTEGER;
  reservedBytes = 0;
}

export function layerPath(agent: AgentId, layer: LayerId): string {
  return `/fake/agents/${agent}/layers/${layer}`;
}

export function ownBasePath(agent: AgentId, digest: Digest): string {
  return `/fake/agents/${agent}/bases/${digest}`;
}

export function sha256(bytes: Uint8Array): Digest {
  return createHash("sha256").update(bytes).digest("hex") as Digest;
}
