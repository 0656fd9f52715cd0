/**
 * Guest link: the host end of the only channel into a VM. Wire: docs/internals/guest-link.md.
 *
 * Two-sided boundary (I4): until `letOut` is called only control operations are sent, and from the
 * guest only answers to them are taken; anything else is dropped and counted.
 *
 * Errors of every method: `guest_unreachable` (link closed), `guest_timeout` (no answer within the
 * deadline), `guest_protocol_violation` (closes the link), and the guest's own status codes.
 *
 * Guest agents in old checkpoints and templates speak an older version of the protocol. What they lack
 * is `not_supported`, without a word to them: `GuestExec.terminal`, `resizeTerminal`, `listFolder`,
 * `makeFolder`, `movePath`, `removePath` and `watch` need version 2, `connect`, `openWayOut` and attributes of
 * `writeFile` version 3.
 */
import type { Exit, GuestClockFacts, ProcessView } from "@perdure/protocol";

export interface GuestInfo {
  readonly version: string;
  readonly bootId: string;
  readonly generation: number;
  readonly frozen: boolean;
  /** What its kernel keeps time by. Null: a guest agent from before that does not tell. */
  readonly clock: GuestClockFacts | null;
}

export interface GuestClock {
  /** Guest wall clock minus host wall clock, milliseconds, from the best round trip. */
  readonly skewMs: number;
  /** Half of that round trip: the skew is known to ± this. */
  readonly boundMs: number;
  /** All that were made, at least one. */
  readonly roundTrips: number;
  /** How far the guest's wall clock was moved for that, milliseconds. */
  readonly movedMs: number;
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

/**
 * What is cheap to ask every few seconds: whether anything goes on inside. The figures only grow while
 * the VM lives, sleeps included, but for `attached`.
 */
export interface GuestActivity {
  /** CPU time of the workload. */
  readonly cpuUsec: number;
  /** Written to the block devices since boot. */
  readonly diskWriteBytes: number;
  /** Programs that were started over the link since boot. Null: a guest agent of version 1. */
  readonly execs: number | null;
  /** Files written, folders made, and paths moved and removed over the link since boot. Null as above. */
  readonly fileWrites: number | null;
  /** Readers of output that are attached now. Null as above. */
  readonly attached: number | null;
}

/** Of a terminal, 1 to 4,096 each. */
export interface TerminalSize {
  readonly rows: number;
  readonly columns: number;
}

export interface GuestExec {
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly cwd?: string;
  readonly user: string;
  readonly timeoutMs?: number;
  readonly stdin: boolean;
  readonly logBytes?: number;
  /**
   * The program gets a terminal of this size, as the controlling one of a session of its own: stdin, stdout
   * and stderr are it. All output is `stdout`; stdin is open, whatever `stdin` says. Ending it types the
   * terminal's end-of-file character (^D): that ends the input of a program that reads lines, and what others
   * make of it is theirs. It is no hang-up, nor is a reader that leaves. TERM is `xterm-256color` unless
   * `env` has one.
   */
  readonly terminal?: TerminalSize;
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
  /** Extended ones whose names begin with `user.`, by what follows. Absent: none, or the guest does not say. */
  readonly attributes?: Readonly<Record<string, string>>;
}

export interface FileWriteOptions {
  readonly user: string;
  readonly mode: number;
  readonly size: number;
  /** All that it has afterwards, as in `FileFacts`; absent: none. */
  readonly attributes?: Readonly<Record<string, string>> | undefined;
}

export interface FolderEntry extends FileFacts {
  /**
   * One component of a path. What is not UTF-8 in it comes as U+FFFD: such an entry is seen, but cannot
   * be named over the link.
   */
  readonly name: string;
  /** Where a link leads, as it is written there; null: not a link. */
  readonly linkTarget: string | null;
}

/**
 * What happened below a watched path. Paths are absolute.
 *
 * - `ready`: always the first; whatever happens after it is told.
 * - `created`: something new stands at the path, perhaps in place of something else; so is what `writeFile` wrote.
 * - `changed`: content was written. Changes that follow close on each other are told once.
 * - `attributes`: mode, owner, times or links.
 * - `moved`: within what is watched, `from` being the old path. Out of it: `removed`; into it: `created`.
 * - `missed`: there was more than could be kept or watched: what is below the path must be looked at anew.
 *
 * What appears in a folder that was itself just made may be told twice.
 */
export type FileChange =
  | { readonly type: "ready" }
  | {
      readonly type: "created" | "changed" | "removed" | "moved" | "attributes";
      readonly path: string;
      readonly from?: string;
    }
  | { readonly type: "missed" };

/** A connection to a TCP port inside, as a stream of bytes each way that ends by itself. */
export interface PortConnection {
  /**
   * What the program sent next, as it comes; null once it has ended its side. What is not read is not asked
   * of the guest beyond a window. One call at a time.
   * @throws `connection_reset` where the program broke it off; `interrupted` when the link closes
   */
  read(): Promise<Uint8Array | null>;
  /** Resolves when the guest had room for all of it. One call at a time. @throws as `read` */
  write(bytes: Uint8Array): Promise<void>;
  /** No more is written: the program sees the end of its input after the last byte. */
  end(): void;
  /** Breaks it off, unless both sides have ended: the program sees a reset. Whoever reads gets null. */
  close(): void;
}

/** A connection that a program inside makes to elsewhere. It waits there, unread, until it is taken. */
export interface OutboundConnection {
  /** The name that it was made to, in lower case; null: it was made to an address. */
  readonly name: string | null;
  /** IPv4. Of a name the one that stands for it inside, and for nothing outside. */
  readonly address: string;
  readonly port: number;
  /**
   * What is taken and closed is refused: the program sees a reset. What nobody takes within a minute is, too.
   * @throws `connection_reset` where the program has left
   */
  take(): Promise<PortConnection>;
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
  /**
   * Has the guest's kernel keep time by this source, one that it knows.
   * @throws `not_supported` where it stays with another, or the guest agent lacks the operation
   */
  useClockSource(name: string): Promise<void>;
  addEntropy(bytes: Uint8Array): Promise<void>;
  /** @throws `flush_timeout` */
  flush(deadlineMs: number): Promise<void>;
  /** @throws `freeze_timeout`; the request stays in place until `thaw` */
  freeze(deadlineMs: number): Promise<void>;
  thaw(): Promise<void>;
  /**
   * Before a thaw: takes what passed on the guest's clock since the freeze off every wait that the freeze turned into a
   * rest of time (select, pselect, ppoll). Without it those begin their rest at the thaw. Returns how many
   * were shortened.
   * @throws `bad_request` where nothing is frozen, `not_supported` where the guest agent lacks the operation
   */
  shortenFrozenWaits(): Promise<number>;
  setGeneration(generation: number, json: string): Promise<void>;
  setIdentity(identity: GuestIdentity): Promise<void>;
  runHooks(deadlineMs: number): Promise<readonly HookResult[]>;
  /** Only the figures of memory: cheap, the guest agent starts no child for them. */
  stats(only: "memory"): Promise<GuestMemory>;
  stats(): Promise<GuestStats>;
  timers(): Promise<readonly GuestTimer[]>;
  /** Cheap: no child, files that are held open. A guest agent of version 1 is asked for its STATS. */
  activity(): Promise<GuestActivity>;
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
  /**
   * The program is told by SIGWINCH.
   * @throws `process_not_found`, `process_ended`, `not_supported` where it has no terminal
   */
  resizeTerminal(process: number, size: TerminalSize): Promise<void>;
  /** A link is described, not followed. */
  stat(path: string, user: string): Promise<FileFacts>;
  /**
   * Facts of the whole file, and the bytes of `range`, by default all: from `offset` on, at most `length`, and
   * fewer where the file ends before.
   */
  readFile(
    path: string,
    user: string,
    range?: { readonly offset: number; readonly length?: number },
  ): Promise<{ facts: FileFacts; bytes: AsyncIterable<Uint8Array> }>;
  /** Whole or not at all, attributes with it. @throws `size_mismatch` where `bytes` is not `size` long */
  writeFile(
    path: string,
    options: FileWriteOptions,
    bytes: AsyncIterable<Uint8Array>,
  ): Promise<void>;
  /**
   * What is in a folder, in any order, without `.` and `..`, under back-pressure: memory at both ends
   * does not grow with the folder. What comes or goes meanwhile may be there or not. Leaving the loop ends it.
   * @throws `path_not_found`, `path_not_folder`, `path_is_link`, `path_denied`
   */
  listFolder(path: string, user: string): AsyncIterable<FolderEntry>;
  /**
   * Durable on return, as are `movePath` and `removePath`. With `parents` as `mkdir -p`: folders before it that
   * are missing are made with mode 0755, and a folder that is there already is fine and stays as it is.
   * @throws `path_exists`; `path_not_found` where its parent is missing
   */
  makeFolder(
    path: string,
    options: { user: string; mode: number; parents: boolean },
  ): Promise<void>;
  /**
   * Atomic: `to` is what was there before or the whole of `from`. A link is moved itself.
   * @throws `path_exists` without `replace`; with it `path_not_empty`, `path_is_directory` and
   *   `path_not_folder` where one cannot take the other's place; `path_crosses_mount`
   */
  movePath(from: string, to: string, options: { user: string; replace: boolean }): Promise<void>;
  /**
   * A link is removed itself, never followed. Not all or nothing: what failed half-way may be repeated.
   * @throws `path_not_found`; `path_not_empty` without `recursive`; `path_crosses_mount` where a file
   *   system is mounted at or below the path
   */
  removePath(path: string, options: { user: string; recursive: boolean }): Promise<void>;
  /**
   * Changes of a file, or of a folder and what is in it, with `recursive` at any depth. Lives through
   * freeze and thaw and no longer than the link. Ends when a watched folder is gone; a watched file that is gone
   * may come again. Links are not followed, other file systems not entered. Leaving the loop ends it.
   * @throws `path_not_found`, `path_is_link`, `path_denied`, `too_many`; `interrupted` when the link closes
   */
  watch(path: string, options: { user: string; recursive: boolean }): AsyncIterable<FileChange>;
  /**
   * Connects to a TCP port inside, on 127.0.0.1 or ::1. A program that is frozen takes nothing yet.
   * @param port 1 to 65,535
   * @throws `port_refused` where no program listens, `connection_reset` where it is broken off at once,
   *   `deadline_exceeded` where no program takes it in time, `too_many`
   */
  connect(port: number, deadlineMs: number): Promise<PortConnection>;
  /**
   * Opens the way out: connections that programs inside make to elsewhere wait to be taken; without it they are
   * reset at once. A control operation, for before the thaw: it resolves once the guest holds them, and nothing
   * is told before the link is let out and the iteration begins. Leaving the iteration closes the way out.
   * @throws `not_supported` of a machine that has none, or whose guest agent is older
   */
  openWayOut(deadlineMs: number): Promise<AsyncIterableIterator<OutboundConnection, undefined>>;
}

export interface GuestLinks {
  /**
   * Connects to a machine's port and begins to read and discard at once. No frame is sent before
   * `sync`. @throws `guest_unreachable`
   */
  connect(linkPath: string): Promise<GuestLink>;
}
