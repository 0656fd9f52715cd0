/**
 * Everything that can be asked of Perdure. Front doors (HTTP, timers, recovery) only parse into these
 * shapes; the engine behind `Commands` is the one place that executes them, one queue per agent.
 *
 * `Command` changes something and answers once. The other methods of `Commands` read, or stream bytes.
 * `agent` is always a name or an id, and always looked up within `tenant`.
 */
import type {
  AgentId,
  AgentState,
  AgentView,
  CheckpointId,
  CheckpointView,
  CheckpointsResponse,
  ConnectionsResponse,
  DoctorReport,
  EgressPolicy,
  EgressView,
  EndWish,
  Exit,
  Freed,
  Hold,
  HotView,
  LetOut,
  ListResponse,
  MachineShape,
  OnCrash,
  ProcessView,
  VerifyEvent,
  WakeReport,
  Why,
} from "@perdure/protocol";
import type { PortFacts } from "./agent.ts";
import type { ExecWish } from "./exec-default.ts";
import type { FileCommand, FileCommands } from "./file-command.ts";
import type { GuestStats, PortConnection, TerminalSize } from "./ports/guest-link.ts";
import type { AgeQuery } from "./ports/state-store.ts";
import type { Target } from "./target.ts";
import type { TransferCommands } from "./transfer-command.ts";

export type { LetOut } from "@perdure/protocol";
export type { Target } from "./target.ts";

export interface ProcessTarget extends Target {
  readonly process: number;
}

/** What an owner says of an agent; each as a whole where it is given. */
export interface OwnerWish {
  /** Null: none. */
  readonly end?: EndWish | null | undefined;
  readonly wakeOnTraffic?: boolean | undefined;
  /** Of ports that nothing else was said of. A fork does not have it from its origin. */
  readonly portsPublic?: boolean | undefined;
  readonly labels?: Readonly<Record<string, string>> | undefined;
  /** Variables of every program that a call starts. */
  readonly env?: Readonly<Record<string, string>> | undefined;
}

export interface Create extends OwnerWish {
  readonly kind: "create";
  readonly tenant: string;
  readonly name: string;
  /** Name or id. */
  readonly image: string;
  readonly shape: MachineShape;
  readonly onCrash: OnCrash;
  /** Whether the image's program is started by itself; absent: as the image says. */
  readonly start?: boolean;
  /** Absent: as the daemon's settings say. */
  readonly idleAfterMs?: number | null;
  /** Absent: as the daemon's settings say. */
  readonly checkpointEveryMs?: number | null;
  /** Absent: nothing gets out. */
  readonly egress?: EgressPolicy;
}

/** A page of what an agent has many of. */
export interface PageQuery extends Target {
  /** The `next` of the page before; absent: from the oldest on. */
  readonly after?: number | undefined;
  /** Default: as many as a page holds at most. */
  readonly limit?: number;
}

/** Changes settings of an agent in whatever state it is; what is absent stays as it is. */
export interface Configure extends Target, OwnerWish {
  readonly kind: "configure";
  /** As is `cpus`: given at the next cold start. */
  readonly memoryBytes?: number;
  readonly cpus?: number;
  /** Not less than it is. */
  readonly diskBytes?: number;
  readonly onCrash?: OnCrash;
  readonly idleAfterMs?: number | null;
  readonly checkpointEveryMs?: number | null;
  readonly wakeAtMs?: number | null;
}

/** Keeps the agent awake for so long; wakes it where it is asleep. It can still be put to sleep on demand. */
export interface HoldAwake extends Target {
  readonly kind: "hold";
  readonly forMs: number;
  readonly reason: string;
}

/** Ends a hold before its time. `hold_not_found` where there is none, or it has ended. */
export interface EndHold extends Target {
  readonly kind: "end-hold";
  readonly hold: number;
}

/** Lets nobody in but the operator, and nothing out: an awake agent is put to sleep. */
export interface Quarantine extends Target {
  readonly kind: "quarantine";
  readonly reason: string;
}

/** The operator's word that a quarantined agent may go on: it is what it was, not woken yet. */
export interface Release extends Target {
  readonly kind: "release";
}

/** Starts a program and answers as soon as it runs. Wakes the agent first where it is asleep. */
export interface Exec extends Target, ExecWish {
  readonly kind: "exec";
}

/** Ends nothing inside: memory is kept. Does nothing where the agent is asleep. */
export interface Sleep extends Target {
  readonly kind: "sleep";
  /** Whether a program inside that waits for a time wakes it then; default true. */
  readonly wakesForWaits?: boolean;
  /** Whether a call that arrives before it sleeps keeps it awake; default true. Else the call comes after. */
  readonly cancellable?: boolean;
}

/** Does nothing where the agent is awake. A crashed agent is recovered as its `onCrash` says. */
export interface Wake extends Target {
  readonly kind: "wake";
}

/** A cut of the awake agent, which goes on. `name` makes it kept until dropped. */
export interface Checkpoint extends Target {
  readonly kind: "checkpoint";
  readonly name?: string;
}

/**
 * Back to a checkpoint that is kept: the agent as it is now is kept as a checkpoint, then goes on from
 * `checkpoint` (id or name) under a new generation. One without memory is booted.
 */
export interface Restore extends Target {
  readonly kind: "restore";
  readonly checkpoint: string;
}

/**
 * New agents that go on from a checkpoint of this one (id or name; absent: as the agent is now), each under
 * an identity of its own.
 */
export interface Fork extends Target {
  readonly kind: "fork";
  /** At least one; all of one cut. All are made, or none. */
  readonly names: readonly string[];
  readonly checkpoint?: string;
  /** What the new agents do not have from this one. */
  readonly owner?: OwnerWish;
  /** Of all of them. Absent: nothing gets out: what its origin may do is its origin's. */
  readonly egress?: EgressPolicy;
}

/** Keeps `count` machines ready that hold a checkpoint (absent: the newest): a fork or restore takes one. */
export interface KeepHot extends Target {
  readonly kind: "hot";
  readonly checkpoint?: string;
  readonly use: "fork" | "restore";
  readonly count: number;
}

/** Forgets a kept checkpoint, by id or name, and frees what nothing else needs. */
export interface Drop extends Target {
  readonly kind: "drop";
  readonly checkpoint: string;
}

/** Merges disk layers where that makes fewer, and removes what no checkpoint that is kept needs. */
export interface Gc extends Target {
  readonly kind: "gc";
}

/** Says who may visit a TCP port inside; absent: as it is, private to begin with. */
export interface SetPort extends Target {
  readonly kind: "set-port";
  readonly port: number;
  readonly public?: boolean;
  /** A token of before lets nobody in any more. */
  readonly renewToken?: boolean;
}

/** Which connections to elsewhere programs inside may make, from now on; those that are open are not spared. */
export interface SetEgress extends Target {
  readonly kind: "set-egress";
  readonly policy: EgressPolicy;
}

/** Powers off, keeps the disk. */
export interface Stop extends Target {
  readonly kind: "stop";
}

/** Boots from the disk, without memory. */
export interface Start extends Target {
  readonly kind: "start";
}

/** `from` absent: as the agent's `onCrash` says. */
export interface Recover extends Target {
  readonly kind: "recover";
  readonly from?: "checkpoint" | "disk";
}

/** Destroys the agent's key, then its files. */
export interface Remove extends Target {
  readonly kind: "remove";
}

export interface Signal extends ProcessTarget {
  readonly kind: "signal";
  readonly signal: number;
  /** The whole process tree. SIGKILL with `tree` answers when all are gone. */
  readonly tree: boolean;
}

/** Gives the terminal that the process runs on another size. */
export interface Resize extends ProcessTarget, TerminalSize {
  readonly kind: "resize";
}

export type Command =
  | Create
  | Configure
  | HoldAwake
  | EndHold
  | Quarantine
  | Release
  | Exec
  | Sleep
  | Wake
  | Checkpoint
  | Restore
  | Drop
  | Fork
  | KeepHot
  | Gc
  | SetPort
  | SetEgress
  | Stop
  | Start
  | Recover
  | Remove
  | Signal
  | Resize
  | FileCommand;

/** What each kind of command answers when it is done and verified. */
export interface Results {
  create: AgentView;
  configure: AgentView;
  hold: Hold;
  "end-hold": AgentView;
  quarantine: AgentView;
  release: AgentView;
  exec: { readonly process: number; readonly pid: number; readonly generation: number };
  sleep: AgentView;
  wake: LetOut;
  checkpoint: CheckpointView;
  restore: LetOut;
  drop: AgentView;
  /** Of the new agents, in the order of their names. */
  fork: readonly LetOut[];
  hot: HotView;
  gc: Freed;
  "set-port": { readonly agent: AgentId; readonly port: number } & PortFacts;
  "set-egress": EgressView;
  stop: AgentView;
  start: LetOut;
  recover: LetOut;
  remove: AgentView;
  signal: undefined;
  resize: undefined;
  makeFolder: undefined;
  movePath: undefined;
  removePath: undefined;
}

export type ResultOf<C extends Command> = Results[C["kind"]];

/** A connection to a port of an agent. While bytes pass it counts as a caller, else it keeps no agent awake. */
export interface AgentConnection extends PortConnection {
  /** Of the agent that it leads to. */
  readonly generation: number;
  /** Counts as a caller, also without bytes, until what is returned is called. */
  attend(): () => void;
}

export interface ListQuery {
  readonly tenant: string;
  /** Names that begin so. */
  readonly prefix?: string;
  readonly state?: AgentState;
  /** Agents that have all of these. */
  readonly label?: Readonly<Record<string, string>> | undefined;
  /** Name after which the page begins. */
  readonly after?: string;
  readonly limit: number;
  /** Names or ids of the only agents that may be shown; absent: all. */
  readonly agents?: readonly string[];
}

/** `OutputEvent` of the protocol, with bytes in place of base64. Nothing follows `exit` or `interrupted`. */
export type ProcessOutput =
  | {
      readonly type: "output";
      readonly stream: "stdout" | "stderr";
      readonly offset: number;
      readonly bytes: Uint8Array;
    }
  | { readonly type: "cut"; readonly from: number; readonly to: number }
  | ({ readonly type: "exit" } & Exit)
  /** The agent slept, stopped or moved on; the process may go on later. `offset`: where to read on. */
  | { readonly type: "interrupted"; readonly reason: string; readonly offset: number };

/** Every method rejects with a `PerdureError`. */
export interface Commands extends FileCommands, TransferCommands {
  /**
   * Does what `command` says and resolves when it is done. A caller that goes away does not undo it.
   */
  execute<C extends Command>(command: C): Promise<ResultOf<C>>;

  /** A page of living agents, by name. Never waits for an agent's queue. */
  list(query: ListQuery): Promise<ListResponse>;
  /** Living agents by when they were made. Never waits for an agent's queue. */
  listByAge(query: AgeQuery): Promise<readonly AgentView[]>;
  /** @throws `agent_not_found` */
  show(target: Target): Promise<AgentView>;
  /** What the gate found at the newest wake; null where the agent was never let out. */
  report(target: Target): Promise<WakeReport | null>;
  /** Why it is awake or not, and what would change that. */
  why(target: Target): Promise<Why>;
  /** What the programs that a call starts have as variables by the owner's word. */
  environment(target: Target): Promise<Readonly<Record<string, string>>>;
  /** Whom a call that names nobody is made for: as the image says. */
  userOf(target: Target): Promise<string>;
  /** What the guest uses now. @throws `agent_state` where the agent is not awake: it is not woken for that */
  usage(target: Target): Promise<GuestStats>;
  /** A checkpoint by its id, and whose it is. @throws `checkpoint_not_found` */
  findCheckpoint(wanted: {
    readonly tenant: string;
    readonly checkpoint: CheckpointId;
  }): Promise<{ readonly agent: AgentView; readonly checkpoint: CheckpointView }>;
  /** A page of them, oldest first. */
  checkpoints(query: PageQuery): Promise<CheckpointsResponse>;
  /** Which connections to elsewhere it may make, and whether it can. Never waits for the agent's queue. */
  egress(target: Target): Promise<EgressView>;
  /** A page of its connections to elsewhere, oldest first. */
  connections(query: PageQuery): Promise<ConnectionsResponse>;
  /**
   * Whether everything that the agent's checkpoints name, or this one (id or name), is what was written.
   * Changes nothing and never waits for the agent's queue. Ends soon after `signal` aborts, with its reason.
   * @throws `checkpoint_not_found`
   */
  verify(
    target: Target & { readonly checkpoint?: string },
    signal: AbortSignal,
  ): Promise<AsyncIterable<VerifyEvent>>;
  /** Processes that exec started, in order of start. Empty where no memory is kept. */
  processes(target: Target): Promise<readonly ProcessView[]>;
  doctor(): Promise<DoctorReport>;

  /**
   * A process's output from byte `offset` on, then its `exit`, or `interrupted`. What the caller does
   * not consume is not asked of the guest. Ends soon after `signal` aborts, also while the process is
   * silent; the process never notices. `wakes` false: an agent that is not awake is `agent_state`.
   */
  output(
    target: ProcessTarget & { readonly wakes?: boolean },
    offset: number,
    signal: AbortSignal,
  ): Promise<AsyncIterable<ProcessOutput>>;
  /**
   * Connects to a TCP port inside. It ends with `interrupted` when the agent sleeps, stops or moves on. `wakes` false:
   * an agent that is not awake is `agent_state`.
   * @throws `port_refused` where no program listens, `deadline_exceeded` where none takes it in time, `too_many`
   */
  connect(
    target: Target & { readonly port: number; readonly wakes?: boolean },
  ): Promise<AgentConnection>;
  /**
   * Resolves when the guest has taken all of it. `end` closes the process's stdin. Once `gone` aborts nobody waits for
   * that any more, and it keeps the agent from no sleep. @throws `stdin_closed`
   */
  writeStdin(
    target: ProcessTarget,
    bytes: Uint8Array,
    end: boolean,
    gone: AbortSignal,
  ): Promise<void>;
}
