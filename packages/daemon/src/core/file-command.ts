/**
 * What can be asked of the files inside an agent: part of `Commands`, and the kinds of `Command` that change
 * them. A path is absolute, and no symbolic link in it is followed.
 */
import type { FileChange, FileFacts, FolderEntry } from "./ports/guest-link.ts";
import type { Target } from "./target.ts";

/** A path, and whose rights count inside; absent: as for an exec. */
export interface PathTarget extends Target {
  readonly path: string;
  readonly user?: string;
}

export interface FileWrite extends PathTarget {
  /** Permission bits. */
  readonly mode: number;
  readonly size: number;
  /** Extended ones whose names begin with `user.`, by what follows; absent: none. */
  readonly attributes?: Readonly<Record<string, string>>;
}

/** With `parents` as `mkdir -p`. */
export interface MakeFolder extends PathTarget {
  readonly kind: "makeFolder";
  /** Permission bits. */
  readonly mode: number;
  readonly parents: boolean;
}

/** `replace`: what stands at `to` gives way. */
export interface MovePath extends Target {
  readonly kind: "movePath";
  readonly from: string;
  readonly to: string;
  readonly user?: string;
  readonly replace: boolean;
}

export interface RemovePath extends PathTarget {
  readonly kind: "removePath";
  /** A folder goes with all that is in it. */
  readonly recursive: boolean;
}

export type FileCommand = MakeFolder | MovePath | RemovePath;

/** Ends after `interrupted`, or when the path itself is gone. */
export type WatchEvent =
  | FileChange
  /** The agent slept, stopped or moved on: what changes from here on is not told. */
  | { readonly type: "interrupted"; readonly reason: string };

export interface FileCommands {
  /** A link is described, not followed. */
  stat(target: PathTarget): Promise<FileFacts>;
  /** Resolves once it is known that there is such a folder. Leaving the loop ends it. */
  listFolder(target: PathTarget): Promise<AsyncIterable<FolderEntry>>;
  /**
   * Facts of the whole file, and the bytes of `range`: fewer where the file ends before. `bytes` is consumed
   * once; leaving the loop ends the transfer. @throws `path_not_found` and its like
   */
  readFile(
    target: PathTarget & { readonly range?: { readonly offset: number; readonly length?: number } },
  ): Promise<{ readonly facts: FileFacts; readonly bytes: AsyncIterable<Uint8Array> }>;
  /**
   * Whole or not at all. An error thrown by `bytes` (the uploader went away) leaves the target as it
   * was. @throws `size_mismatch` where `bytes` is not `size` long
   */
  writeFile(target: FileWrite, bytes: AsyncIterable<Uint8Array>): Promise<void>;
  /**
   * Resolves once whatever happens is told; the first event is `ready`. Ends soon after `signal` aborts.
   * `wakes` false: an agent that is not awake is `agent_state`.
   */
  watch(
    target: PathTarget & { readonly recursive: boolean; readonly wakes: boolean },
    signal: AbortSignal,
  ): Promise<AsyncIterable<WatchEvent>>;
}
