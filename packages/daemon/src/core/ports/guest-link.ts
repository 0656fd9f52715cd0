/**
 * Guest link: the host end of the only channel into a VM. Wire: docs/internals/guest-link.md.
 *
 * Two-sided boundary (I4): until `letOut` is called only control operations are sent, and from the
 * guest only answers to them are taken; anything else is dropped and counted.
 *
 * Errors of every method: `guest_unreachable` (link closed), `guest_timeout` (no answer within the
 * deadline), `guest_protocol_violation` (closes the link), and the guest's own status codes.
 */
import type { Exit, ProcessView } from "@perdure/protocol";

export interface GuestInfo {
  readonly version: string;
  readonly bootId: string;
  readonly generation: number;
  readonly frozen: boolean;
}

export interface GuestClock {
  /** Guest wall clock minus host wall clock, milliseconds, from the best round trip. */
  readonly skewMs: number;
  /** Half of that round trip: the skew is known to ± this. */
  readonly boundMs: number;
  /** All that were made, at least one. */
  readonly roundTrips: number;
}

export interface GuestIdentity {
  readonly hostname: string;
  readonly machineId: string;
  readonly bootId: string;
  readonly files: readonly { path: string; mode: number; bytes: Uint8Array }[];
}

export interface HookResult {
  readonly path: string;
  readonly exitCode: number | null;
  readonly signal: number | null;
  readonly output: string;
}

/** What the guest's kernel has its memory for. Guest agents from before do not tell what may be null. */
export interface GuestMemory {
  readonly memTotalBytes: number;
  readonly memAvailableBytes: number;
  /** Memory of programs. */
  readonly anonBytes: number;
  /** Shared memory and tmpfs: part of `cachedBytes`, but on no disk. */
  readonly shmemBytes: number;
  readonly cachedBytes: number;
  readonly buffersBytes: number | null;
  readonly slabBytes: number | null;
  /** What of `slabBytes` `dropCaches` may give back. */
  readonly slabReclaimableBytes: number | null;
}

export interface GuestStats extends GuestMemory {
  readonly cpuUsec: number;
  readonly processes: number;
  readonly load1Milli: number;
  readonly diskTotalBytes: number;
  readonly diskFreeBytes: number;
  readonly diskWriteBytes: number;
}

export interface GuestTimer {
  readonly pid: number;
  readonly name: string;
  readonly dueInMs: number;
}

export interface GuestExec {
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly cwd?: string;
  readonly user: string;
  readonly timeoutMs?: number;
  readonly stdin: boolean;
  readonly logBytes?: number;
}

/** What a reader of a process's output sees, in order. Ends after `exit`. */
export type OutputPiece =
  | {
      readonly type: "output";
      readonly stream: "stdout" | "stderr";
      readonly offset: number;
      readonly bytes: Uint8Array;
    }
  | { readonly type: "cut"; readonly from: number; readonly to: number }
  | ({ readonly type: "exit" } & Exit);

export interface FileFacts {
  readonly kind: "file" | "directory" | "link" | "other";
  readonly size: number;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly mtimeMs: number;
}

export interface GuestLink {
  /** RESYNC and wait for SYNCED: a new epoch. Call once, after the VM runs. */
  sync(generation: number, deadlineMs: number): Promise<void>;
  /** From here on streams of users are allowed. */
  letOut(): void;
  /** Frames dropped because the agent was not let out yet. */
  readonly droppedFrames: number;
  /** Resolves when the link is closed, with why. */
  readonly closed: Promise<string>;
  /**
   * Closes the link. Streams that are open end with `interrupted` and this reason (`sleep`, `stop`…),
   * after what was already received.
   */
  close(reason: string): void;

  /**
   * Keeps back what users send, until `release`. Once a control operation that is asked for after it was
   * answered, the guest has taken all that was sent before: nothing more reaches the VM's memory while its
   * CPUs stand still. (A VM process takes bytes in for a guest that is stopped.)
   */
  hold(): void;
  release(): void;

  // Control operations: allowed at any time after `sync`.
  info(deadlineMs: number): Promise<GuestInfo>;
  /**
   * Sets the guest's wall clock to the host's and measures what is left, over as few round trips as it
   * takes to know it well.
   */
  setClock(deadlineMs: number): Promise<GuestClock>;
  addEntropy(bytes: Uint8Array): Promise<void>;
  /** @throws `flush_timeout` */
  flush(deadlineMs: number): Promise<void>;
  /** @throws `freeze_timeout`; the request stays in place until `thaw` */
  freeze(deadlineMs: number): Promise<void>;
  thaw(): Promise<void>;
  setGeneration(generation: number, json: string): Promise<void>;
  setIdentity(identity: GuestIdentity): Promise<void>;
  runHooks(deadlineMs: number): Promise<readonly HookResult[]>;
  /** Only the figures of memory: cheap, the guest agent starts no child for them. */
  stats(only: "memory"): Promise<GuestMemory>;
  stats(): Promise<GuestStats>;
  timers(): Promise<readonly GuestTimer[]>;
  /**
   * Has the guest's kernel give back page cache that is on the disk too, and names and inodes of files:
   * after a `flush`, so that a sleep need not store them. What is dirty or in use stays.
   * @throws `not_supported` where the guest agent cannot
   */
  dropCaches(deadlineMs: number): Promise<void>;
  /** Ends the workload and powers off; resolves when the guest says so. */
  shutdown(deadlineMs: number): Promise<void>;

  // User operations: `agent_state` before `letOut`.
  exec(request: GuestExec): Promise<{ process: number; pid: number }>;
  processes(): Promise<readonly ProcessView[]>;
  /**
   * Output from `offset` on, under back-pressure: what is not consumed is not requested. Detached by
   * leaving the loop.
   * @throws `interrupted` when the link closes first
   */
  attach(process: number, offset: number): AsyncIterable<OutputPiece>;
  /** Writes to stdin as the guest takes it; ends stdin where `end`. @throws `stdin_closed` */
  writeStdin(process: number, bytes: Uint8Array, end: boolean): Promise<void>;
  signal(process: number, signal: number, tree: boolean, deadlineMs: number): Promise<void>;
  forget(process: number): Promise<void>;
  stat(path: string, user: string): Promise<FileFacts>;
  readFile(
    path: string,
    user: string,
  ): Promise<{ facts: FileFacts; bytes: AsyncIterable<Uint8Array> }>;
  /** Whole or not at all. @throws `size_mismatch` where `bytes` is not `size` long */
  writeFile(
    path: string,
    options: { user: string; mode: number; size: number },
    bytes: AsyncIterable<Uint8Array>,
  ): Promise<void>;
}

export interface GuestLinks {
  /**
   * Connects to a machine's port and begins to read and discard at once. No frame is sent before
   * `sync`. @throws `guest_unreachable`
   */
  connect(linkPath: string): Promise<GuestLink>;
}
