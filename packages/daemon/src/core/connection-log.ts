/**
 * The log of connections to elsewhere (I11): each is stored before its first byte goes out, and once more when it
 * is over. A daemon that dies leaves those that were open as `lost`: what they carried is not known, that they were
 * there is.
 *
 * Writes are gathered: while one transaction is written, what comes waits for the next, all of it.
 */
import {
  apiLimits,
  egressLimits,
  makeId,
  PerdureError,
  type AgentId,
  type ConnectionsResponse,
} from "@perdure/protocol";
import { connectionView, type ConnectionRow } from "./connection.ts";
import { firstPage } from "./page.ts";
import type { Clock } from "./ports/clock.ts";
import type { ConnectionEnd, ConnectionStart, ConnectionTeller } from "./ports/egress.ts";
import type { Log } from "./ports/log.ts";
import type { StateChange, StateStore } from "./ports/state-store.ts";

export interface ConnectionLogOptions {
  readonly state: StateStore;
  readonly clock: Clock;
  readonly log: Log;
}

/** Rows of one transaction at most. */
const BATCH_MAX = 512;
/** New rows of an agent from one collection to the next. */
const COLLECT_EVERY = 256;
/** Within this the last end of a daemon is told. */
const ENDS_MS = 1_000;

interface Waiting {
  readonly change: StateChange;
  readonly done: PromiseWithResolvers<undefined>;
}

export class ConnectionLog {
  readonly #options: ConnectionLogOptions;
  #waiting: Waiting[] = [];
  #writing: Promise<void> | null = null;
  readonly #open = new Set<Promise<undefined>>();
  readonly #sinceCollection = new Map<AgentId, number>();

  constructor(options: ConnectionLogOptions) {
    this.#options = options;
  }

  /** Those that a daemon before left open are lost. Before the first is told. Does not reject. */
  async begin(): Promise<void> {
    const { state, clock, log } = this.#options;
    try {
      await state.commit([{ kind: "lose-connections", atMs: clock.nowMs() }]);
    } catch (error) {
      const { message } = PerdureError.from(error);
      log("warn", "Connections that were open could not be said to be lost", { message });
    }
  }

  /** For connections of one generation of an agent. */
  teller(agent: AgentId, generation: number, passed: () => void): ConnectionTeller {
    const { clock, log } = this.#options;
    const rowOf = (start: ConnectionStart): ConnectionRow => ({
      ...factsOf(start),
      id: makeId("cn", start.atMs, clock.randomBytes(10)),
      agent,
      generation,
      endedAtMs: null,
      outcome: "open",
      outBytes: 0,
      inBytes: 0,
      why: null,
    });
    const ended = async (change: StateChange): Promise<void> => {
      try {
        await this.#write(change);
      } catch (error) {
        const { message } = PerdureError.from(error);
        log("warn", "The end of a connection could not be stored", { agent, message });
      }
    };
    return {
      passed,
      begun: async (start) => {
        const row = rowOf(start);
        this.#collectSometimes(agent);
        await this.#write({ kind: "insert-connection", connection: row });
        const over = Promise.withResolvers<undefined>();
        this.#open.add(over.promise);
        return async (end) => {
          await ended({ kind: "update-connection", connection: endedRow(row, end) });
          over.resolve(undefined);
          this.#open.delete(over.promise);
        };
      },
      refused: (end) => {
        this.#collectSometimes(agent);
        return ended({ kind: "insert-connection", connection: endedRow(rowOf(end), end) });
      },
    };
  }

  async page(agent: AgentId, after = 0, limit: number = apiLimits.listLimitMax) {
    const query = { agent, after, limit: limit + 1 };
    const found = await this.#options.state.connectionPage(query);
    const { page, next } = firstPage(found, limit, ({ place }) => place);
    const connections = page.map(({ row }) => connectionView(row));
    return { connections, next } satisfies ConnectionsResponse;
  }

  /** Once nothing is served any more: resolves when all is stored, or some end is late: those will be lost. */
  async settled(): Promise<void> {
    const over = new AbortController();
    const late = this.#options.clock.wait(ENDS_MS, over.signal).catch(() => undefined);
    await Promise.race([Promise.all(this.#open), late]);
    over.abort();
    await this.#writing;
  }

  #write(change: StateChange): Promise<undefined> {
    const done = Promise.withResolvers<undefined>();
    this.#waiting.push({ change, done });
    this.#writing ??= this.#writeAll();
    return done.promise;
  }

  async #writeAll(): Promise<void> {
    // What comes in the same turn of the loop is written together.
    await Promise.resolve();
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0, BATCH_MAX);
      // On a full disk new ones are refused, and what ends those that are there is not.
      const isNew = ({ change }: Waiting): boolean => change.kind === "insert-connection";
      await Promise.all([
        this.#commit(batch.filter(isNew)),
        this.#commit(batch.filter((each) => !isNew(each))),
      ]);
    }
    // In the turn that saw the end: whatever is asked for after it begins anew.
    this.#writing = null;
  }

  async #commit(batch: readonly Waiting[]): Promise<void> {
    if (batch.length === 0) return;
    try {
      await this.#options.state.commit(batch.map(({ change }) => change));
      for (const { done } of batch) done.resolve(undefined);
    } catch (error) {
      for (const { done } of batch) done.reject(error);
    }
  }

  #collectSometimes(agent: AgentId): void {
    const since = (this.#sinceCollection.get(agent) ?? 0) + 1;
    this.#sinceCollection.set(agent, since % COLLECT_EVERY);
    if (since !== COLLECT_EVERY) return;
    const { connectionsKeptMax: countMax, connectionsKeptMs } = egressLimits;
    const sinceMs = this.#options.clock.nowMs() - connectionsKeptMs;
    this.#write({ kind: "collect-connections", agent, sinceMs, countMax }).catch(
      (error: unknown) => {
        const { message } = PerdureError.from(error);
        this.#options.log("warn", "Old connections could not be forgotten", { agent, message });
      },
    );
  }
}

function factsOf({ atMs, name, address, port, method, rule, unmediated }: ConnectionStart) {
  return { atMs, name, address, port, method, rule, unmediated };
}

function endedRow(row: ConnectionRow, end: ConnectionEnd): ConnectionRow {
  const { outcome, outBytes, inBytes, why, ms } = end;
  const endedAtMs = row.atMs + ms;
  return { ...row, ...factsOf(end), endedAtMs, outcome, outBytes, inBytes, why };
}
