/** What can be asked of agents as files: part of `Commands`. */
import type { ImportResponse } from "@perdure/protocol";
import type { AgentExport } from "./ports/export-file.ts";
import type { Target } from "./target.ts";

/** An agent as one file. Of an awake one a checkpoint must be named. */
export interface Export extends Target {
  /** Id or name; absent: the newest. */
  readonly checkpoint?: string;
  /** Every other checkpoint with a name, too. */
  readonly all: boolean;
  readonly withImage: boolean;
  /** Null: in the clear, with the agent's key. */
  readonly passphrase: string | null;
}

/** A new agent from a file. */
export interface Import {
  readonly tenant: string;
  readonly name: string;
  readonly passphrase: string | null;
}

export type Imported = ImportResponse;

/** Every method rejects with a `PerdureError`. */
export interface TransferCommands {
  /**
   * Holds the agent's queue until the file is open, not while it is read. The caller closes it.
   * @throws `agent_state`, `checkpoint_not_found`
   */
  export(request: Export): Promise<AgentExport>;
  /**
   * Takes a file in, whole or not at all. An error thrown by `bytes` (the uploader went away) leaves nothing.
   * @throws `export_invalid`, `export_too_new`, `export_passphrase`, `agent_exists`, `disk_full`
   */
  import(request: Import, bytes: AsyncIterable<Uint8Array>): Promise<Imported>;
}
