/**
 * StateStore on SQLite: WAL, synchronous FULL, in a worker thread with group commit. The file is held
 * exclusively; see `database.ts` for the lock, `group-commit.ts` for what one fsync carries, and
 * `ballast.ts` for what happens on a full disk.
 */
import { Worker } from "node:worker_threads";
import { PerdureError, type AgentId } from "@perdure/protocol";
import type { Agent } from "../../core/agent.ts";
import type { ApiKey } from "../../core/api-key.ts";
import type { CheckpointRow } from "../../core/checkpoint.ts";
import type { UnmediatedSince } from "../../core/connection.ts";
import type { KeptRequest } from "../../core/kept-request.ts";
import type {
  PlacedCheckpoint,
  PlacedConnection,
  StateStore,
  StoredEvents,
} from "../../core/ports/state-store.ts";
import { BALLAST, OPENED } from "./message.ts";
import type { NumberedAnswer, StoreRequest } from "./message.ts";

export interface SqliteStateStoreOptions {
  /** The database file; made with its folder where it is not there. */
  readonly path: string;
}

/**
 * Opens the store and brings its schema up to date.
 *
 * @throws `daemon_running` where another process holds the file, `data_too_new`, `store_failed`
 */
export async function openSqliteStateStore(options: SqliteStateStoreOptions): Promise<StateStore> {
  const worker = new Worker(new URL("./worker.ts", import.meta.url), {
    name: "state-store",
    workerData: { path: options.path },
    execArgv: ["--disable-warning=ExperimentalWarning"],
  });
  const thread = createStoreThread(worker);
  await thread.opened;
  const call = thread.call;
  let tellEvents = (): void => undefined;
  return {
    commit: async (changes) => {
      await call({ kind: "commit", changes });
      if (changes.some(({ kind }) => kind === "append-event")) tellEvents();
    },
    agent: async (id) => (await call({ kind: "agent", id })) as Agent | null,
    agentByName: async (tenant, name) =>
      (await call({ kind: "agentByName", tenant, name })) as Agent | null,
    listAgents: async (query) => (await call({ kind: "listAgents", query })) as Agent[],
    allAgents: async () => (await call({ kind: "allAgents" })) as Agent[],
    agentsByAge: async (query) => (await call({ kind: "agentsByAge", query })) as Agent[],
    due: async (limit) => (await call({ kind: "due", limit })) as { id: AgentId; dueMs: number }[],
    unsettledAgents: async () => (await call({ kind: "unsettledAgents" })) as Agent[],
    lastAsleep: async (limit) => (await call({ kind: "lastAsleep", limit })) as Agent[],
    agentIds: async (after, limit) => (await call({ kind: "agentIds", after, limit })) as AgentId[],
    checkpoints: async (agent) => (await call({ kind: "checkpoints", agent })) as CheckpointRow[],
    checkpointPage: async (query) =>
      (await call({ kind: "checkpointPage", query })) as PlacedCheckpoint[],
    checkpoint: async (id) => (await call({ kind: "checkpoint", id })) as CheckpointRow | null,
    connectionPage: async (query) =>
      (await call({ kind: "connectionPage", query })) as PlacedConnection[],
    unmediatedSince: async (agent, atMs) =>
      (await call({ kind: "unmediatedSince", agent, atMs })) as UnmediatedSince,
    events: async (query) => (await call({ kind: "events", query })) as StoredEvents,
    onEvents: (listener) => {
      tellEvents = listener;
    },
    key: async (id) => (await call({ kind: "key", id })) as ApiKey | null,
    keyByName: async (tenant, name) =>
      (await call({ kind: "keyByName", tenant, name })) as ApiKey | null,
    keys: async (query) => (await call({ kind: "keys", query })) as ApiKey[],
    request: async (principal, key) =>
      (await call({ kind: "request", principal, key })) as KeptRequest | null,
    onReserve: (listener) => thread.onBallast(listener),
    close: () => thread.close(),
  };
}

interface Waiter {
  resolve(value: unknown): void;
  reject(error: PerdureError): void;
}

function createStoreThread(worker: Worker) {
  const waiters = new Map<number, Waiter>();
  let ended: PerdureError | undefined;
  let closing: Promise<void> | undefined;
  let number = OPENED;
  let ballastHeld = true;
  let tellBallast: (held: boolean) => void = () => undefined;

  const wait = (key: number): Promise<unknown> =>
    new Promise((resolve, reject) => waiters.set(key, { resolve, reject }));
  const opened = wait(OPENED);
  const exited = new Promise<void>((resolve) => {
    worker.once("exit", () => {
      ended ??= new PerdureError("store_failed", "The state store is closed");
      for (const waiter of waiters.values()) waiter.reject(ended);
      waiters.clear();
      resolve();
    });
  });
  worker.on("error", (error) => {
    const reason = error instanceof Error ? error.message : String(error);
    ended = new PerdureError("store_failed", `The state store's thread ended: ${reason}`, {
      cause: error,
    });
  });
  worker.on("message", (answer: NumberedAnswer) => {
    if (answer.number === BALLAST) {
      ballastHeld = "value" in answer && answer.value === true;
      tellBallast(ballastHeld);
      return;
    }
    const waiter = waiters.get(answer.number);
    waiters.delete(answer.number);
    if ("error" in answer) waiter?.reject(PerdureError.fromBody(answer.error));
    else waiter?.resolve(answer.value);
  });

  const send = (request: StoreRequest): Promise<unknown> => {
    if (ended !== undefined) return Promise.reject(ended);
    number += 1;
    worker.postMessage({ number, request });
    return wait(number);
  };
  return {
    opened,
    call: (request: StoreRequest): Promise<unknown> =>
      closing === undefined
        ? send(request)
        : Promise.reject(new PerdureError("store_failed", "The state store is closed")),
    onBallast: (listener: (held: boolean) => void): void => {
      tellBallast = listener;
      if (!ballastHeld) listener(ballastHeld);
    },
    /** Idempotent: what was sent before is done first. */
    close: (): Promise<void> =>
      (closing ??= send({ kind: "close" }).then(
        () => exited,
        () => exited,
      )),
  };
}
