/**
 * Commits on a disk that may be full. What says the truth about an agent, or makes room, goes through with
 * the help of the ballast; a new agent is refused for as long as the ballast is gone, and so is what is kept
 * of requests alone, and a new connection out.
 */
import type { DatabaseSync } from "node:sqlite";
import { PerdureError } from "@perdure/protocol";
import type { RequestChange, StateChange } from "../../core/ports/state-store.ts";
import { BALLAST_NEEDS_BYTES, type Ballast } from "./ballast.ts";
import { commitGroup, type Rows } from "./group-commit.ts";

type Transaction = readonly StateChange[];

/** As `commitGroup`. */
export function commitOnFullDisk(
  ballast: Ballast,
  database: DatabaseSync,
  rows: Rows,
  transactions: readonly Transaction[],
): (PerdureError | undefined)[] {
  const admitsNew = ballast.held || (transactions.some(isCreate) && ballast.take());
  const entries = transactions.map((changes) => ({
    changes,
    outcome: admitsNew ? undefined : refusal(changes, ballast.folder),
  }));
  const run = (some: typeof entries): void => {
    const outcomes = commitGroup(
      database,
      rows,
      some.map(({ changes }) => changes),
    );
    for (const [index, entry] of some.entries()) entry.outcome = outcomes[index];
  };
  run(entries.filter(({ outcome }) => outcome === undefined));
  const starved = entries.filter(
    ({ changes, outcome }) =>
      outcome?.code === "disk_full" && !isCreate(changes) && !isOfRequests(changes),
  );
  if (starved.length > 0 && ballast.letGo()) {
    run(starved);
    moveIntoDatabase(database);
  }
  return entries.map(({ outcome }) => outcome);
}

/** While there is room yet: a database that need not grow leaves the log's own room to what comes. */
function moveIntoDatabase(database: DatabaseSync): void {
  try {
    database.exec("PRAGMA wal_checkpoint(PASSIVE)");
  } catch {
    // It stays in the log, which is as durable; SQLite tries again by itself.
  }
}

function isCreate(changes: Transaction): boolean {
  return changes.some(({ kind }) => kind === "insert-agent");
}

/** What can be done without. */
const requestKinds: ReadonlySet<string> = new Set<
  RequestChange["kind"] | "touch-key" | "insert-connection"
>([
  "touch-key",
  "insert-connection",
  "insert-request",
  "answer-request",
  "release-request",
  "collect-requests",
]);

function isOfRequests(changes: Transaction): boolean {
  return changes.every(({ kind }) => requestKinds.has(kind));
}

function refusal(changes: Transaction, folder: string): PerdureError | undefined {
  if (isCreate(changes)) return createRefused(folder);
  if (!isOfRequests(changes)) return undefined;
  return new PerdureError("disk_full", "Cannot keep what was asked for: the disk is full");
}

function createRefused(folder: string): PerdureError {
  return new PerdureError(
    "disk_full",
    `Cannot store a new agent: the disk is full, and what it keeps for changes of state is in use; ${BALLAST_NEEDS_BYTES} bytes must be free again`,
    {
      hint: `Remove an agent that is no longer needed, or free some space on the file system of "${folder}"; then try again.`,
      details: { needBytes: BALLAST_NEEDS_BYTES },
    },
  );
}
