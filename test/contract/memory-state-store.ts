/** StateStore in memory, for tests. Plain data in, copies out; nothing is durable. */
import { keyLimits, PerdureError } from "@perdure/protocol";
import type { AgentId, AgentState, CheckpointId } from "@perdure/protocol";
import { dueMs, hasLabels, type Agent } from "../../packages/daemon/src/core/agent.ts";
import type { ApiKey, KeyId } from "../../packages/daemon/src/core/api-key.ts";
import type { CheckpointRow } from "../../packages/daemon/src/core/checkpoint.ts";
import type { ConnectionRow } from "../../packages/daemon/src/core/connection.ts";
import type {
  KeptRequest,
  KeptRequestBounds,
} from "../../packages/daemon/src/core/kept-request.ts";
import type {
  EventQuery,
  NewEvent,
  StateChange,
  StateStore,
  StoredEvents,
} from "../../packages/daemon/src/core/ports/state-store.ts";

interface Tables {
  readonly agents: Map<AgentId, Agent>;
  readonly checkpoints: Map<CheckpointId, CheckpointRow>;
  /** Of checkpoints, in the order in which they came; those that were forgotten included. */
  readonly places: Map<CheckpointId, number>;
  /** By principal and key. */
  readonly requests: Map<string, KeptRequest>;
  readonly keys: Map<KeyId, ApiKey>;
  /** In the order in which they came. */
  connections: readonly { readonly row: ConnectionRow; readonly place: number }[];
  readonly events: (NewEvent & { readonly id: number })[];
  /** Of the newest event. */
  lastEvent: number;
  lastConnection: number;
}

const settledStates = new Set<AgentState>(["asleep", "stopped", "quarantined", "failed"]);

export function createMemoryStateStore(): StateStore {
  let tables: Tables = {
    agents: new Map(),
    checkpoints: new Map(),
    places: new Map(),
    requests: new Map(),
    keys: new Map(),
    connections: [],
    events: [],
    lastEvent: 0,
    lastConnection: 0,
  };
  let tellEvents = (): void => undefined;
  let closed = false;

  const answer = async <T>(work: (tables: Tables) => T): Promise<T> => {
    await Promise.resolve();
    if (closed) throw new PerdureError("store_failed", "The state store is closed");
    return structuredClone(work(tables));
  };
  const living = (tenant: string): Agent[] =>
    [...tables.agents.values()]
      .filter((agent) => agent.tenant === tenant && agent.state !== "removed")
      .sort((one, two) => (one.name < two.name ? -1 : 1));

  return {
    commit: (changes) => {
      const copied = structuredClone(changes);
      if (closed)
        return Promise.reject(new PerdureError("store_failed", "The state store is closed"));
      const draft = {
        agents: new Map(tables.agents),
        checkpoints: new Map(tables.checkpoints),
        places: new Map(tables.places),
        requests: new Map(tables.requests),
        keys: new Map(tables.keys),
        connections: tables.connections,
        lastConnection: tables.lastConnection,
        events: [...tables.events],
        lastEvent: tables.lastEvent,
      };
      try {
        for (const change of copied) apply(draft, change);
      } catch (error) {
        return Promise.reject(PerdureError.from(error));
      }
      const isTold = draft.lastEvent !== tables.lastEvent;
      tables = draft;
      if (isTold) tellEvents();
      return Promise.resolve();
    },
    agent: (id) => answer(({ agents }) => agents.get(id) ?? null),
    agentByName: (tenant, name) =>
      answer(() => living(tenant).find((agent) => agent.name === name) ?? null),
    listAgents: ({ tenant, prefix = "", after = "", state, label = {}, limit }) =>
      answer(() =>
        living(tenant)
          .filter((agent) => agent.name.startsWith(prefix) && agent.name > after)
          .filter((agent) => state === undefined || agent.state === state)
          .filter((agent) => hasLabels(agent, label))
          .slice(0, limit),
      ),
    allAgents: () => answer(({ agents }) => [...agents.values()]),
    agentsByAge: ({ tenant, label, order, after, limit }) =>
      answer(() => {
        const found = living(tenant)
          .filter((agent) => hasLabels(agent, label))
          .sort((one, two) => (one.id < two.id ? -1 : 1));
        if (order === "newest-first") found.reverse();
        const isNext = ({ id }: Agent): boolean =>
          after === null || (order === "newest-first" ? id < after : id > after);
        return found.filter(isNext).slice(0, limit);
      }),
    due: (limit) =>
      answer(({ agents }) =>
        [...agents.values()]
          .flatMap((agent) => {
            const atMs = dueMs(agent);
            return atMs === null ? [] : [{ id: agent.id, dueMs: atMs }];
          })
          .sort((one, two) => one.dueMs - two.dueMs)
          .slice(0, limit),
      ),
    unsettledAgents: () =>
      answer(({ agents }) =>
        [...agents.values()].filter(
          ({ state, lease }) => !settledStates.has(state) || lease !== null,
        ),
      ),
    lastAsleep: (limit) =>
      answer(({ agents }) =>
        [...agents.values()]
          .filter(({ state }) => state === "asleep")
          .sort((one, two) => two.changedAtMs - one.changedAtMs)
          .slice(0, limit),
      ),
    agentIds: (after, limit) =>
      answer(({ agents }) =>
        [...agents.keys()]
          .sort()
          .filter((id) => id > (after ?? ""))
          .slice(0, limit),
      ),
    checkpoints: (agent) =>
      answer(({ checkpoints }) => [...checkpoints.values()].filter((row) => row.agent === agent)),
    checkpointPage: ({ agent, after, limit }) =>
      answer(({ checkpoints, places }) =>
        [...checkpoints.values()]
          .filter((row) => row.agent === agent)
          .map((row) => ({ row, place: places.get(row.id) ?? 0 }))
          .filter(({ place }) => place > after)
          .slice(0, limit),
      ),
    checkpoint: (id) => answer(({ checkpoints }) => checkpoints.get(id) ?? null),
    connectionPage: ({ agent, after, limit }) =>
      answer(({ connections }) =>
        connections
          .filter(({ row, place }) => row.agent === agent && place > after)
          .slice(0, limit),
      ),
    unmediatedSince: (agent, atMs) =>
      answer(({ connections }) => {
        const found = connections
          .map(({ row }) => row)
          .filter((row) => row.agent === agent && row.unmediated)
          .filter(({ endedAtMs }) => endedAtMs === null || endedAtMs > atMs);
        return { count: found.length, last: found.at(-1) ?? null };
      }),
    events: (query) => answer(({ events, lastEvent }) => pageOf(events, lastEvent, query)),
    onEvents: (listener) => {
      tellEvents = listener;
    },
    key: (id) => answer(({ keys }) => keys.get(id) ?? null),
    keyByName: (tenant, name) =>
      answer(() => keysOf(tables, tenant).find((key) => key.name === name) ?? null),
    keys: ({ tenant, after, limit }) =>
      answer(() =>
        keysOf(tables, tenant)
          .filter(({ name }) => name > after)
          .slice(0, limit),
      ),
    request: (principal, key) =>
      answer(({ requests }) => requests.get(slotOf({ principal, key })) ?? null),
    close: () => {
      closed = true;
      return Promise.resolve();
    },
  };
}

function apply(tables: Tables, change: StateChange): void {
  const { agents, checkpoints, places, requests, keys, events } = tables;
  const refuse = (message: string): never => {
    throw new PerdureError("store_failed", message);
  };
  switch (change.kind) {
    case "insert-agent":
      if (agents.has(change.agent.id)) refuse(`Agent "${change.agent.id}" is already stored`);
      refuseTakenName(agents, change.agent);
      agents.set(change.agent.id, change.agent);
      return;
    case "update-agent": {
      const { agent, expectedRevision } = change;
      const stored = agents.get(agent.id)?.revision;
      if (stored !== expectedRevision || agent.revision !== expectedRevision + 1) {
        refuse(
          `Cannot store agent "${agent.name}": its revision is not ${expectedRevision} any more`,
        );
      }
      refuseTakenName(agents, agent);
      agents.set(agent.id, agent);
      return;
    }
    case "insert-checkpoint": {
      const { checkpoint } = change;
      if (checkpoints.has(checkpoint.id)) refuse(`Checkpoint "${checkpoint.id}" is already stored`);
      if (!agents.has(checkpoint.agent)) refuse(`Agent "${checkpoint.agent}" is not stored`);
      checkpoints.set(checkpoint.id, checkpoint);
      places.set(checkpoint.id, places.size + 1);
      return;
    }
    case "update-checkpoint":
      if (checkpoints.has(change.checkpoint.id)) {
        checkpoints.set(change.checkpoint.id, change.checkpoint);
      }
      return;
    case "delete-checkpoint":
      checkpoints.delete(change.id);
      return;
    case "delete-agent":
      agents.delete(change.id);
      for (const { id, agent } of checkpoints.values()) {
        if (agent === change.id) checkpoints.delete(id);
      }
      tables.connections = tables.connections.filter(({ row }) => row.agent !== change.id);
      return;
    case "insert-connection": {
      const place = ++tables.lastConnection;
      tables.connections = [...tables.connections, { row: change.connection, place }];
      return;
    }
    case "update-connection":
      tables.connections = tables.connections.map((one) =>
        one.row.id === change.connection.id ? { ...one, row: change.connection } : one,
      );
      return;
    case "lose-connections":
      tables.connections = tables.connections
        .filter(({ row }) => agents.has(row.agent))
        .map((one) => (one.row.endedAtMs === null ? { ...one, row: lost(one.row, change) } : one));
      return;
    case "collect-connections":
      for (const unmediated of [true, false]) {
        const ofThem = ({ row }: Placed): boolean =>
          row.agent === change.agent && row.unmediated === unmediated;
        const newest = new Set(tables.connections.filter(ofThem).slice(-change.countMax));
        tables.connections = tables.connections.filter((one) => {
          if (!ofThem(one) || one.row.endedAtMs === null) return true;
          return newest.has(one) && one.row.endedAtMs >= change.sinceMs;
        });
      }
      return;
    case "append-event":
      events.push({ ...change.event, id: ++tables.lastEvent });
      return;
    case "collect-events": {
      const young = events.findIndex(({ atMs }) => atMs >= change.sinceMs);
      const old = young < 0 ? events.length : young;
      events.splice(0, Math.max(old, events.length - change.countMax));
      return;
    }
    case "insert-key": {
      const { key } = change;
      const others = keysOf(tables, key.tenant);
      if (others.some(({ name }) => name === key.name)) {
        throw new PerdureError("key_exists", `Cannot make key "${key.name}"`);
      }
      if (others.length >= keyLimits.keysMax) throw new PerdureError("too_many", "Too many keys");
      keys.set(key.id, key);
      return;
    }
    case "touch-key": {
      const key = keys.get(change.id);
      if (key !== undefined) keys.set(key.id, { ...key, lastUsedAtMs: change.atMs });
      return;
    }
    case "delete-key":
      keys.delete(change.id);
      return;
    case "insert-request": {
      const { request, sinceMs } = change;
      const kept = requests.get(slotOf(request));
      if (kept !== undefined && kept.atMs >= sinceMs) {
        throw new PerdureError("idempotency_conflict", `Key "${request.key}" is kept already`);
      }
      requests.delete(slotOf(request));
      requests.set(slotOf(request), request);
      return;
    }
    case "answer-request": {
      const kept = requests.get(slotOf(change));
      if (kept !== undefined) requests.set(slotOf(change), { ...kept, answer: change.answer });
      return;
    }
    case "release-request":
      requests.delete(slotOf(change));
      return;
    case "collect-requests":
      collect(requests, change.bounds);
      return;
  }
}

type Placed = Tables["connections"][number];

function lost(row: ConnectionRow, { atMs }: { readonly atMs: number }): ConnectionRow {
  return { ...row, endedAtMs: atMs, outcome: "lost", why: "The daemon ended before it did" };
}

function pageOf(
  events: Tables["events"],
  last: number,
  { tenant, agents, kinds, after, limit }: EventQuery,
): StoredEvents {
  const found = events
    .filter((event) => event.tenant === tenant && event.id > after)
    .filter(
      ({ agent, name }) => agents === null || [agent, name].some((ref) => agents.includes(ref)),
    )
    .filter(({ kind }) => kinds === null || kinds.includes(kind))
    .slice(0, limit)
    .map(({ id, atMs, kind, agent, name, generation, data }) => {
      return { id, atMs, kind, agent, name, generation, data };
    });
  const isWhole = found.length < limit;
  const scannedTo = isWhole ? last : (found.at(-1)?.id ?? after);
  return { events: found, scannedTo, first: events[0]?.id ?? last + 1, last };
}

function keysOf({ keys }: Tables, tenant: string): ApiKey[] {
  return [...keys.values()]
    .filter((key) => key.tenant === tenant)
    .sort((one, two) => (one.name < two.name ? -1 : 1));
}

function slotOf({ principal, key }: Pick<KeptRequest, "principal" | "key">): string {
  return `${principal} ${key}`;
}

function collect(requests: Tables["requests"], bounds: KeptRequestBounds): void {
  let [count, bytes] = [0, 0];
  const counts = new Map<string, number>();
  for (const [slot, { principal, answer, atMs }] of [...requests].reverse()) {
    count += 1;
    bytes += Buffer.byteLength(answer?.body ?? "");
    counts.set(principal, (counts.get(principal) ?? 0) + 1);
    const isOver =
      atMs < bounds.sinceMs ||
      (counts.get(principal) ?? 0) > bounds.ofPrincipalMax ||
      count > bounds.countMax ||
      bytes > bounds.bytesMax;
    if (isOver) requests.delete(slot);
  }
}

function refuseTakenName(agents: Tables["agents"], agent: Agent): void {
  const taken = [...agents.values()].some(
    (other) =>
      other.id !== agent.id &&
      other.tenant === agent.tenant &&
      other.name === agent.name &&
      other.state !== "removed" &&
      agent.state !== "removed",
  );
  if (!taken) return;
  throw new PerdureError(
    "agent_exists",
    `Cannot create agent "${agent.name}": another agent already has this name`,
  );
}
