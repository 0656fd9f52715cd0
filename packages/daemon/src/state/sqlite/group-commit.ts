/**
 * Group commit: transactions that arrived together share one BEGIN…COMMIT, and so one fsync. Each
 * stands in a savepoint of its own: one that fails takes back its own changes only.
 *
 * No outcome is known before the COMMIT returned. If the COMMIT fails, or SQLite gave the whole
 * transaction up (disk full, I/O error), every member fails.
 */
import type { DatabaseSync } from "node:sqlite";
import { PerdureError } from "@perdure/protocol";
import type { StateChange } from "../../core/ports/state-store.ts";
import { prepareAgentRows } from "./agent-rows.ts";
import type { AgentRows } from "./agent-rows.ts";
import { prepareCheckpointRows } from "./checkpoint-rows.ts";
import type { CheckpointRows } from "./checkpoint-rows.ts";
import { prepareConnectionRows } from "./connection-rows.ts";
import type { ConnectionRows } from "./connection-rows.ts";
import { transactionError } from "./database.ts";
import { prepareEventRows } from "./event-rows.ts";
import type { EventRows } from "./event-rows.ts";
import { prepareKeyRows } from "./key-rows.ts";
import type { KeyRows } from "./key-rows.ts";
import { prepareRequestRows } from "./request-rows.ts";
import type { RequestRows } from "./request-rows.ts";

/** At most this many transactions share one fsync. */
export const GROUP_COMMITS_MAX = 256;

export interface Rows {
  readonly agents: AgentRows;
  readonly checkpoints: CheckpointRows;
  readonly connections: ConnectionRows;
  readonly events: EventRows;
  readonly keys: KeyRows;
  readonly requests: RequestRows;
}

export function prepareRows(database: DatabaseSync): Rows {
  return {
    agents: prepareAgentRows(database),
    checkpoints: prepareCheckpointRows(database),
    connections: prepareConnectionRows(database),
    events: prepareEventRows(database),
    keys: prepareKeyRows(database),
    requests: prepareRequestRows(database),
  };
}

/** Undefined where the transaction is durable, else why it is not. In the order of `transactions`. */
export function commitGroup(
  database: DatabaseSync,
  rows: Rows,
  transactions: readonly (readonly StateChange[])[],
): (PerdureError | undefined)[] {
  const outcomes: (PerdureError | undefined)[] = [];
  try {
    database.exec("BEGIN IMMEDIATE");
    for (const changes of transactions) {
      outcomes.push(commitOne(database, rows, changes));
    }
    database.exec("COMMIT");
    return outcomes;
  } catch (error) {
    if (database.isTransaction) database.exec("ROLLBACK");
    const failure = transactionError(error);
    return transactions.map((_, index) => outcomes[index] ?? failure);
  }
}

/** Throws only where the whole group is lost. */
function commitOne(
  database: DatabaseSync,
  rows: Rows,
  changes: readonly StateChange[],
): PerdureError | undefined {
  database.exec("SAVEPOINT one");
  try {
    for (const change of changes) apply(rows, change);
    database.exec("RELEASE one");
    return undefined;
  } catch (error) {
    if (!database.isTransaction) throw error;
    database.exec("ROLLBACK TO one");
    database.exec("RELEASE one");
    return transactionError(error);
  }
}

function apply(rows: Rows, change: StateChange): void {
  const { agents, checkpoints, connections, events, keys, requests } = rows;
  switch (change.kind) {
    case "insert-agent":
      agents.insert(change.agent);
      return;
    case "update-agent":
      agents.update(change.agent, change.expectedRevision);
      return;
    case "insert-checkpoint":
      checkpoints.insert(change.checkpoint);
      return;
    case "update-checkpoint":
      checkpoints.update(change.checkpoint);
      return;
    case "delete-checkpoint":
      checkpoints.delete(change.id);
      return;
    case "delete-agent":
      agents.delete(change.id);
      connections.deleteOf(change.id);
      return;
    case "insert-connection":
      connections.insert(change.connection);
      return;
    case "update-connection":
      connections.update(change.connection);
      return;
    case "lose-connections":
      connections.lose(change.atMs);
      return;
    case "collect-connections":
      connections.collect(change.agent, change.sinceMs, change.countMax);
      return;
    case "append-event":
      events.append(change.event);
      return;
    case "collect-events":
      events.collect(change.sinceMs, change.countMax);
      return;
    case "insert-key":
      keys.insert(change.key);
      return;
    case "touch-key":
      keys.touch(change.id, change.atMs);
      return;
    case "delete-key":
      keys.delete(change.id);
      return;
    case "insert-request":
      requests.insert(change.request, change.sinceMs);
      return;
    case "answer-request":
      requests.answer(change.principal, change.key, change.answer);
      return;
    case "release-request":
      requests.release(change.principal, change.key);
      return;
    case "collect-requests":
      requests.collect(change.bounds);
      return;
    default:
      throw new PerdureError(
        "internal",
        `Unknown change ${JSON.stringify(change satisfies never)}`,
      );
  }
}
