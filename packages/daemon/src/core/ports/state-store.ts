/**
 * State store: agents and their checkpoints as rows. SQLite by default; the contract suite in
 * test/contract/state-store.ts holds for each implementation.
 *
 * `commit` is one transaction: all changes or none, durable on return (synchronous FULL). Every
 * change to an agent is a compare-and-set on its revision: that is the fence between two commands.
 *
 * On a full disk a store lives on a reserve: changes of agents that exist still go through, a new agent is
 * refused with `disk_full` until the reserve is there again.
 */
import type { AgentEvent, AgentId, AgentState, CheckpointId, EventKind } from "@perdure/protocol";
import type { Agent } from "../agent.ts";
import type { ApiKey, KeyId } from "../api-key.ts";
import type { CheckpointRow } from "../checkpoint.ts";
import type { ConnectionRow, UnmediatedSince } from "../connection.ts";
import type { KeptAnswer, KeptRequest, KeptRequestBounds } from "../kept-request.ts";

export type StateChange =
  /** @throws `agent_exists` where a living agent of the tenant has the name */
  | { readonly kind: "insert-agent"; readonly agent: Agent }
  /** Stores `agent` (whose revision is `expectedRevision + 1`). @throws `store_failed` where the row's revision is another */
  | { readonly kind: "update-agent"; readonly agent: Agent; readonly expectedRevision: number }
  | { readonly kind: "insert-checkpoint"; readonly checkpoint: CheckpointRow }
  /** In place: its turn among the agent's checkpoints stays. */
  | { readonly kind: "update-checkpoint"; readonly checkpoint: CheckpointRow }
  | { readonly kind: "delete-checkpoint"; readonly id: CheckpointId }
  /** Forgets a removed agent whose files are gone, and its connections. */
  | { readonly kind: "delete-agent"; readonly id: AgentId }
  /** Gives the event the next number of the log. */
  | { readonly kind: "append-event"; readonly event: NewEvent }
  /** Forgets the oldest events: up to the first that is not older than `sinceMs`, and all beyond `countMax`. */
  | { readonly kind: "collect-events"; readonly sinceMs: number; readonly countMax: number }
  /** @throws `key_exists` where a key of the tenant has the name, `too_many` beyond `keysMax` */
  | { readonly kind: "insert-key"; readonly key: ApiKey }
  /** When it was used last. Refused on a full disk. */
  | { readonly kind: "touch-key"; readonly id: KeyId; readonly atMs: number }
  | { readonly kind: "delete-key"; readonly id: KeyId }
  /** Refused on a full disk: what cannot be told is not made. */
  | { readonly kind: "insert-connection"; readonly connection: ConnectionRow }
  | { readonly kind: "update-connection"; readonly connection: ConnectionRow }
  /** Those of every agent that are open are `lost`; those of agents that are gone are forgotten. */
  | { readonly kind: "lose-connections"; readonly atMs: number }
  /**
   * Forgets the agent's connections older than `sinceMs`, and the oldest beyond `countMax`, of those that are
   * unmediated and of the others each: many that were denied push out none that was carried.
   */
  | {
      readonly kind: "collect-connections";
      readonly agent: AgentId;
      readonly sinceMs: number;
      readonly countMax: number;
    }
  | RequestChange;

/** What is kept of requests with an idempotency key. On a full disk it is refused: agents come first. */
export type RequestChange =
  /** @throws `idempotency_conflict` where one of this principal and key is kept that is not older than `sinceMs` */
  | { readonly kind: "insert-request"; readonly request: KeptRequest; readonly sinceMs: number }
  /** Does nothing where the request is not kept any more. */
  | ({ readonly kind: "answer-request"; readonly answer: KeptAnswer } & RequestKey)
  | ({ readonly kind: "release-request" } & RequestKey)
  | { readonly kind: "collect-requests"; readonly bounds: KeptRequestBounds };

type RequestKey = Pick<KeptRequest, "principal" | "key">;

export interface AgentQuery {
  readonly tenant: string;
  readonly prefix?: string;
  readonly state?: AgentState;
  /** All of these. */
  readonly label?: Readonly<Record<string, string>> | undefined;
  /** Name after which the page begins. */
  readonly after?: string;
  readonly limit: number;
}

/** As ids sort: by when they were made. */
export interface AgeQuery {
  readonly tenant: string;
  readonly label: Readonly<Record<string, string>>;
  readonly order: "oldest-first" | "newest-first";
  /** Id after which the page begins, in that order. */
  readonly after: AgentId | null;
  readonly limit: number;
}

export interface KeyQuery {
  readonly tenant: string;
  /** Name after which the page begins. */
  readonly after: string;
  readonly limit: number;
}

/** A page of what an agent has many of. */
export interface AgentPageQuery {
  readonly agent: AgentId;
  /** Place after which the page begins; 0: from the oldest on. */
  readonly after: number;
  readonly limit: number;
}

export interface PlacedCheckpoint {
  readonly row: CheckpointRow;
  /** Above that of every older one, at least 1. */
  readonly place: number;
}

export interface PlacedConnection {
  readonly row: ConnectionRow;
  /** Above that of every older one, at least 1. */
  readonly place: number;
}

/** An event before the log gives it its number. */
export type NewEvent = Omit<AgentEvent, "id"> & { readonly tenant: string };

export interface EventQuery {
  readonly tenant: string;
  /** Names or ids; null: all. */
  readonly agents: readonly string[] | null;
  readonly kinds: readonly EventKind[] | null;
  /** The page begins with what is newer. */
  readonly after: number;
  /** 0: where the log begins and ends is all that is asked. */
  readonly limit: number;
}

/** All of one moment. */
export interface StoredEvents {
  readonly events: readonly AgentEvent[];
  /** Nothing that was asked for is up to here but what is in `events`. */
  readonly scannedTo: number;
  /** Oldest that is kept, of whichever agent and tenant; one more than `last` where none is. */
  readonly first: number;
  /** Newest that ever was, kept or not; 0 where none was. */
  readonly last: number;
}

export interface StateStore {
  commit(changes: readonly StateChange[]): Promise<void>;
  /** By id. Removed agents are found until they are deleted. */
  agent(id: AgentId): Promise<Agent | null>;
  /** By name, living agents only. */
  agentByName(tenant: string, name: string): Promise<Agent | null>;
  /** Living agents by name, ascending. */
  listAgents(query: AgentQuery): Promise<readonly Agent[]>;
  /** Every agent, removed ones included. Holds them all in memory: nothing that runs in a daemon asks for it. */
  allAgents(): Promise<readonly Agent[]>;
  /** Living agents by when they were made. */
  agentsByAge(query: AgeQuery): Promise<readonly Agent[]>;
  /** Agents that something is due for (`dueMs` of core/agent.ts), whose turn comes first first. */
  due(limit: number): Promise<readonly { readonly id: AgentId; readonly dueMs: number }[]>;
  /** What a daemon that starts has to settle: agents with a lease, or in a state that is none to stay in. */
  unsettledAgents(): Promise<readonly Agent[]>;
  /** Sleeping agents that changed last, newest first. */
  lastAsleep(limit: number): Promise<readonly Agent[]>;
  /** Ids of all agents, removed ones included, ascending, those after `after`. */
  agentIds(after: AgentId | null, limit: number): Promise<readonly AgentId[]>;
  /** Oldest first. */
  checkpoints(agent: AgentId): Promise<readonly CheckpointRow[]>;
  /** Oldest first. */
  checkpointPage(query: AgentPageQuery): Promise<readonly PlacedCheckpoint[]>;
  checkpoint(id: CheckpointId): Promise<CheckpointRow | null>;
  /** Oldest first. */
  connectionPage(query: AgentPageQuery): Promise<readonly PlacedConnection[]>;
  /** The agent's unmediated connections that are open, or ended after `atMs`. */
  unmediatedSince(agent: AgentId, atMs: number): Promise<UnmediatedSince>;
  /** Ascending. */
  events(query: EventQuery): Promise<StoredEvents>;
  /** Calls `listener` after each commit that appended events. */
  onEvents(listener: () => void): void;
  key(id: KeyId): Promise<ApiKey | null>;
  keyByName(tenant: string, name: string): Promise<ApiKey | null>;
  /** By name, ascending. */
  keys(query: KeyQuery): Promise<readonly ApiKey[]>;
  /** However old it is. */
  request(principal: string, key: string): Promise<KeptRequest | null>;
  /**
   * Calls `listener` with false when the reserve comes into use (at once where it is), with true when it is
   * there again. One listener. Absent where a store needs no disk.
   */
  onReserve?(listener: (held: boolean) => void): void;
  close(): Promise<void>;
}
