/**
 * Port: an agent as one file, to keep elsewhere or to take to another host. The file stands by itself: with
 * it, and the passphrase that it was written with, any host that can run the agent has all that it takes.
 *
 * What comes in from a file is hostile until it was verified: whole, signed by the host that it says, every
 * size within a limit before anything is allocated or written for it.
 */
import type {
  AgentId,
  CheckpointId,
  Digest,
  MachineShape,
  Manifest,
  OnCrash,
} from "@perdure/protocol";
import type { CapturedState } from "./captured-state.ts";
import type { ImageFile } from "./image-source.ts";
import type { MemoryBase } from "./substrate.ts";

/** What of an agent goes with its checkpoints. */
export interface ExportedAgent {
  readonly id: AgentId;
  readonly name: string;
  readonly image: { readonly id: Digest; readonly name: string };
  readonly shape: MachineShape;
  readonly onCrash: OnCrash;
  readonly start?: boolean;
  readonly idleAfterMs: number | null;
  readonly checkpointEveryMs: number | null;
  /** Key of its template. */
  readonly template: Digest;
}

/** Files of an image, with what it says of itself (`ImageSource.describe`). */
export interface ExportedImage {
  readonly description: string;
  readonly kernel: ImageFile;
  readonly initramfs: ImageFile;
  readonly rootfs: ImageFile | null;
}

export interface ExportRequest {
  readonly agent: ExportedAgent;
  readonly tenant: string;
  /** As the state store has them, oldest first; `digest` of the manifest. */
  readonly checkpoints: readonly {
    readonly id: CheckpointId;
    readonly digest: Digest;
    readonly name: string | null;
  }[];
  /** The one that the imported agent stands on. */
  readonly head: CheckpointId;
  /** Null: whoever imports the file must have the image. */
  readonly image: ExportedImage | null;
  /** Null: in the clear, the agent's key included. */
  readonly passphrase: string | null;
}

export interface AgentExport {
  /** SHA-256 of the public key that signed it, in SPKI form. */
  readonly signer: Digest;
  /** The file. What a checkpoint named when it was opened is in it, whatever is collected meanwhile. Read once. */
  readonly bytes: AsyncIterable<Uint8Array>;
  /** Lets go of everything, whether it was read to its end or not. Idempotent. */
  close(): Promise<void>;
}

/** What a file says that it holds: verified as far as it can be without the rest of it. */
export interface ExportContents {
  readonly signer: Digest;
  readonly exportedAtMs: number;
  readonly agent: ExportedAgent;
  readonly head: CheckpointId;
  readonly checkpoints: readonly {
    readonly manifest: Manifest;
    readonly digest: Digest;
    readonly name: string | null;
  }[];
  readonly image: { readonly description: string } | null;
}

/** What is on this host already is read and verified, but not stored once more. */
export interface ImportPlace {
  /** Has a folder, and nothing in it. */
  readonly agent: AgentId;
  /** The base of the template of this tenant, where there is one. */
  readonly templateBase: (MemoryBase & { readonly kind: "template" }) | null;
  readonly storeImage: boolean;
}

export interface AgentImport {
  readonly contents: ExportContents;
  /** Room on the disk that taking it in may need, by the file's own word. */
  readonly roomBytes: number;
  /**
   * Takes in the rest of the file: layers and bases to where they stay, everything else to a place of its
   * own that the next collection removes. All of it verified by its digest, and durable on return.
   * @throws `export_invalid`, `disk_full`, `cancelled`
   */
  receive(place: ImportPlace): Promise<void>;
  /** After `receive`: memory and devices, to be written as a checkpoint of the new agent's own; null: disk alone. */
  open(checkpoint: CheckpointId): Promise<CapturedState | null>;
  /** After `receive`: where the image's files lie; null where they were not stored. */
  readonly image: ExportedImage | null;
  /** Lets go of the stream, wherever it is. Idempotent. */
  close(): Promise<void>;
}

export interface ExportFiles {
  /** Opens all that the file will hold. @throws `checkpoint_digest_mismatch` and its like */
  openExport(request: ExportRequest): Promise<AgentExport>;
  /**
   * Reads the beginning of a file. `bytes` is read on by `receive`.
   * @throws `export_invalid`, `export_too_new`, `export_passphrase`
   */
  openImport(bytes: AsyncIterable<Uint8Array>, passphrase: string | null): Promise<AgentImport>;
}
