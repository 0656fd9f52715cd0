/**
 * Checkpoint store: manifests, page maps, packs, device state, own bases and disk layers of agents.
 *
 * Durable on return means: the file's content and its name are on disk (fsync of file and folder).
 * Invariant I2: nothing that a published checkpoint names is removed before a newer one is published
 * and `collect` is told what to keep. Files that a VMM wrote are hostile input: sizes are checked
 * before they are parsed, links are not followed.
 */
import type {
  AgentId,
  CheckpointId,
  CheckpointKind,
  Digest,
  LayerId,
  Manifest,
  SubstrateFacts,
  VerifiedPart,
} from "@perdure/protocol";
import type { CapturedState } from "./captured-state.ts";
import type { ExportFiles } from "./export-file.ts";
import type { PageBatch } from "./page.ts";
import type { MemoryBase } from "./substrate.ts";

export type { CapturedState } from "./captured-state.ts";

/** Where the cut comes from and what it is called; all that the manifest says beyond bytes. */
export interface CheckpointDraft {
  readonly checkpoint: CheckpointId;
  readonly agent: AgentId;
  readonly tenant: string;
  readonly generation: number;
  readonly kind: CheckpointKind;
  readonly name?: string;
  readonly parent: CheckpointId | null;
  readonly createdAtMs: number;
  readonly frozen: boolean;
  readonly substrate: SubstrateFacts;
  readonly disk: {
    readonly image: { readonly digest: Digest; readonly bytes: number } | null;
    readonly layers: readonly LayerId[];
    readonly cleanliness: "clean" | "crash-consistent";
  };
  readonly importedFrom?: NonNullable<Manifest["importedFrom"]>;
}

/** What a checkpoint holds, verified, ready to be loaded. */
export interface OpenedCheckpoint {
  readonly manifest: Manifest;
  /** SHA-256 of the manifest's canonical JSON. */
  readonly digest: Digest;
  /** Null where only the disk was kept. */
  readonly state: {
    readonly base: MemoryBase;
    /** Pages over the base, zero ones included; each verified before it is handed out. May be consumed once. */
    pages(): AsyncIterable<PageBatch>;
    readonly devices: Uint8Array;
  } | null;
}

/** A named step at which the store has just made something durable; tests kill there. */
export type StoreStep = (step: string) => Promise<void> | void;

export interface PublishedCheckpoint {
  readonly manifest: Manifest;
  /** SHA-256 of the manifest's canonical JSON: the checkpoint's address. */
  readonly digest: Digest;
  /** Bytes that this checkpoint added to the disk, layers not counted. */
  readonly addedBytes: number;
}

/** Asked of each part that a verification comes to. */
export interface Verification {
  /** Of the manifest as the state store published it: another one is damage. */
  readonly digest: Digest;
  /** Ends the reading early, with the signal's reason. */
  readonly signal: AbortSignal;
  /** Told of bytes as they are read, and of how many there are to be read once that is known. */
  readonly onProgress: (readBytes: number, totalBytes: number) => void;
  /** Parts that another checkpoint of the same agent had and that were read already, by their key. */
  readonly known: Map<string, VerifiedPart>;
}

export interface CheckpointStore extends ExportFiles {
  /** Makes the agent's folder and its key. Durable. Idempotent. */
  createAgent(agent: AgentId, tenant: string): Promise<void>;
  /** Destroys the agent's key first, then removes all of its files. Idempotent. */
  removeAgent(agent: AgentId): Promise<void>;
  /** Agents that have files here; for finding leftovers after a crash. */
  listAgents(): Promise<readonly AgentId[]>;

  /**
   * Fails with `disk_full`, naming the bytes needed and the bytes free, unless `bytes` are free beyond
   * the store's own reserve. Otherwise holds them for this agent until `release`.
   */
  reserve(agent: AgentId, bytes: number): Promise<{ release(): void }>;

  /**
   * Writes a checkpoint: packs, page map, device state, then the manifest. Durable on return, in that
   * order; it counts only once the state store names it. On error everything it wrote is removed.
   * Pages equal to the base or unchanged since `parent` are not stored again. `state` null: disk only.
   * @throws `disk_full`
   */
  write(
    draft: CheckpointDraft,
    state: CapturedState | null,
    step: StoreStep,
  ): Promise<PublishedCheckpoint>;

  /**
   * Verifies manifest, signature, page map and devices, and the identity of the base and the layers,
   * before anything is handed out; packs are verified page by page as they are read.
   * @throws `checkpoint_not_found`, `checkpoint_digest_mismatch` (details name the part),
   *   `checkpoint_signature`, `checkpoint_key_missing`
   */
  open(agent: AgentId, checkpoint: CheckpointId): Promise<OpenedCheckpoint>;
  /**
   * Reads every byte that the checkpoint names and says of each part whether it is what was written.
   * Damage is an answer, no error. Changes nothing, takes no part in any order of operations: writes and
   * collections go on beside it, and what they take away meanwhile is told as missing.
   */
  verify(
    agent: AgentId,
    checkpoint: CheckpointId,
    verification: Verification,
  ): Promise<readonly VerifiedPart[]>;
  /** The manifest alone, verified. */
  manifest(agent: AgentId, checkpoint: CheckpointId): Promise<Manifest>;

  /** Makes an empty layer of `diskBytes` for the agent. Durable after `syncLayer`. */
  createLayer(agent: AgentId, layer: LayerId, diskBytes: number): Promise<void>;
  syncLayer(agent: AgentId, layer: LayerId): Promise<void>;
  /** Puts an immutable layer of a template or another agent into the agent's folder (hard link, or a copy). Durable. */
  linkLayer(agent: AgentId, layer: LayerId, fromPath: string): Promise<void>;
  /** Puts an own base of another agent into this one's folder (hard link, or a copy). Durable. */
  linkBase(agent: AgentId, base: { digest: Digest; path: string; bytes: number }): Promise<void>;
  /**
   * Writes memory, whole, as a base of the agent's own. Durable; no checkpoint names it, so the next `collect`
   * removes it unless it is told to keep it. @throws `disk_full`
   */
  writeBase(
    agent: AgentId,
    memory: {
      readonly base: MemoryBase;
      readonly memoryBytes: number;
      readonly pages: AsyncIterable<PageBatch>;
    },
  ): Promise<MemoryBase & { readonly kind: "own" }>;
  layerPath(agent: AgentId, layer: LayerId): string;
  /** Bytes on disk (allocated blocks) of one layer. */
  layerBytes(agent: AgentId, layer: LayerId): Promise<number>;
  /** Where an own base of the agent lies; it may be gone. */
  ownBasePath(agent: AgentId, digest: Digest): string;
  removeLayer(agent: AgentId, layer: LayerId): Promise<void>;

  /**
   * Removes every checkpoint, pack, own base and layer of the agent that is reachable neither from
   * the checkpoints in `keep` nor named in `keepLayers` and `keepBases` (what a machine has open that no
   * checkpoint names); also left-overs of writes that died.
   * Safe at any time between writes. Returns bytes freed.
   */
  collect(
    agent: AgentId,
    keep: readonly CheckpointId[],
    keepLayers: readonly LayerId[],
    keepBases?: readonly Digest[],
  ): Promise<number>;
  /** Bytes on disk (allocated blocks) of the agent's folder. */
  storedBytes(agent: AgentId): Promise<number>;

  close(): Promise<void>;
}
