/**
 * The state store as one daemon sees it: nothing is answered after the daemon's life. It also notes
 * which machines were let out, for the watch over what may happen inside before (I4), and every
 * generation that was taken (I1).
 */
import type { AgentId } from "@perdure/protocol";
import type { Agent } from "../../packages/daemon/src/core/agent.ts";
import type { StateStore } from "../../packages/daemon/src/core/ports/state-store.ts";
import type { FakeProcess } from "../../packages/daemon/src/substrate/fake/fake-process.ts";
import type { Faults } from "../../packages/daemon/src/substrate/fake/fault.ts";
import type { Life } from "../../packages/daemon/src/substrate/fake/life.ts";
import type { Timeline } from "./timeline.ts";

/** What was committed, over all daemons. */
export class CommitLog {
  /** Machine → whether its let-out is recorded. */
  readonly machines = new Map<string, boolean>();
  readonly generations = new Map<AgentId, number>();
  readonly violations: string[] = [];
  /** Told of each let-out, once it is recorded. */
  onLetOut: ((agent: Agent) => void) | null = null;
  /** Machine → newest row of the agent that had it; agent → its machine. */
  readonly #leases = new Map<string, Agent>();
  readonly #held = new Map<AgentId, string>();
  /** Checkpoints that a plain wake let an agent out from. */
  readonly #woken = new Set<string>();

  /** The daemon ends a process: never one that still holds what nothing else does (I2, I10). */
  killed({ record, happened }: FakeProcess): void {
    const agent = this.#leases.get(record.id);
    if (agent?.lease?.letOut !== true || happened.length > 0) return;
    if (agent.lease.machine.id !== record.id || agent.state === "removed") return;
    this.violations.push(
      `I2: the machine of ${agent.name}, ${agent.state}, was ended by the daemon`,
    );
  }

  note(agent: Agent): void {
    const held = this.#held.get(agent.id);
    if (held !== undefined) this.#leases.set(held, agent);
    if (agent.lease !== null) {
      this.#held.set(agent.id, agent.lease.machine.id);
      this.#leases.set(agent.lease.machine.id, agent);
    }
    const before = this.generations.get(agent.id) ?? 0;
    if (agent.generation < before || agent.generation > before + 1) {
      this.violations.push(`I1: generation ${agent.generation} of ${agent.name} follows ${before}`);
    }
    this.generations.set(agent.id, agent.generation);
    if (agent.lease === null) return;
    const { machine, letOut, route } = agent.lease;
    if (!this.machines.has(machine.id) && agent.generation !== before + 1) {
      this.violations.push(`I1: ${machine.id} of ${agent.name} took generation ${before} again`);
    }
    const first = letOut && this.machines.get(machine.id) !== true;
    this.machines.set(machine.id, letOut);
    if (first) this.onLetOut?.(agent);
    if (!first || route !== "wake" || agent.head === null) return;
    const { checkpoint } = agent.head;
    if (this.#woken.has(checkpoint)) {
      this.violations.push(`I3: ${checkpoint} was continued twice by a plain wake`);
    }
    this.#woken.add(checkpoint);
  }
}

export interface ObservedStateStoreOptions {
  readonly store: StateStore;
  readonly log: CommitLog;
  readonly faults: Faults;
  readonly life: Life;
  readonly time: Timeline;
}

export function observedStateStore(options: ObservedStateStoreOptions): StateStore {
  const { store, log, faults, life, time } = options;
  const ask = <T>(operation: string, work: () => Promise<T>): Promise<T> =>
    life.during(async () => {
      await faults.point(`state.${operation}`);
      await life.pass();
      time.pendingWork++;
      try {
        return await work();
      } finally {
        time.pendingWork--;
      }
    });
  return {
    commit: (changes) =>
      ask("commit", async () => {
        await store.commit(changes);
        for (const change of changes) {
          if (change.kind === "update-agent" || change.kind === "insert-agent")
            log.note(change.agent);
        }
      }),
    agent: (id) => ask("agent", () => store.agent(id)),
    agentByName: (tenant, name) => ask("agentByName", () => store.agentByName(tenant, name)),
    listAgents: (query) => ask("listAgents", () => store.listAgents(query)),
    allAgents: () => ask("allAgents", () => store.allAgents()),
    agentsByAge: (query) => ask("agentsByAge", () => store.agentsByAge(query)),
    due: (limit) => ask("due", () => store.due(limit)),
    unsettledAgents: () => ask("unsettledAgents", () => store.unsettledAgents()),
    lastAsleep: (limit) => ask("lastAsleep", () => store.lastAsleep(limit)),
    agentIds: (after, limit) => ask("agentIds", () => store.agentIds(after, limit)),
    checkpoints: (agent) => ask("checkpoints", () => store.checkpoints(agent)),
    checkpointPage: (query) => ask("checkpointPage", () => store.checkpointPage(query)),
    checkpoint: (id) => ask("checkpoint", () => store.checkpoint(id)),
    connectionPage: (query) => ask("connectionPage", () => store.connectionPage(query)),
    unmediatedSince: (agent, atMs) =>
      ask("unmediatedSince", () => store.unmediatedSince(agent, atMs)),
    events: (query) => ask("events", () => store.events(query)),
    onEvents: (listener) => store.onEvents(listener),
    key: (id) => ask("key", () => store.key(id)),
    keyByName: (tenant, name) => ask("keyByName", () => store.keyByName(tenant, name)),
    keys: (query) => ask("keys", () => store.keys(query)),
    request: (principal, key) => ask("request", () => store.request(principal, key)),
    close: () => ask("close", () => store.close()),
  };
}
