/** An empty store, for the contract to be tested on. */
import type { CheckpointStore } from "../../../packages/daemon/src/core/ports/checkpoint-store.ts";
import type { MemoryBase } from "../../../packages/daemon/src/core/ports/substrate.ts";

export interface OpenCheckpointStore {
  readonly store: CheckpointStore;
  /** Makes `bytes` the base of a template of tenant `default`. */
  templateBase(bytes: Uint8Array): Promise<MemoryBase & { readonly kind: "template" }>;
  /** A path for a file of the test's own, on the store's file system. */
  path(name: string): string;
  dispose(): Promise<void>;
}
