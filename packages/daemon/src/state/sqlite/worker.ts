/**
 * The store's thread: owns the database. Takes everything that waits in the port at once, commits the
 * transactions among it as a group, then answers the reads, so that no read sees what is not durable.
 */
import { parentPort, receiveMessageOnPort, workerData } from "node:worker_threads";
import { PerdureError } from "@perdure/protocol";
import { Ballast } from "./ballast.ts";
import { openDatabase, transactionError } from "./database.ts";
import { commitOnFullDisk } from "./full-disk.ts";
import { GROUP_COMMITS_MAX, prepareRows } from "./group-commit.ts";
import type { Rows } from "./group-commit.ts";
import { BALLAST, OPENED } from "./message.ts";
import type { NumberedAnswer, NumberedRequest, StoreRequest } from "./message.ts";

/** How often it is looked whether the disk has room again for the ballast. */
const BALLAST_RETRY_MS = 5_000;

/** Whether the ballast was held when it was told last. */
let ballastTold = true;

const port = parentPort;
if (port === null) throw new Error("The store's worker runs in a worker thread only");

const post = (answer: NumberedAnswer): void => port.postMessage(answer);

try {
  const ballast = serve();
  post({ number: OPENED, value: null });
  keepBallast(ballast);
} catch (error) {
  post({ number: OPENED, error: PerdureError.from(error, "store_failed").toJSON() });
  port.close();
}

function serve(): Ballast {
  const { path } = workerData as { path: string };
  const database = openDatabase(path);
  const ballast = new Ballast(path);
  const rows = prepareRows(database);
  port?.on("message", (first: NumberedRequest) => {
    const batch = [first, ...waiting()];
    const commits = batch.flatMap(({ number, request }) =>
      request.kind === "commit" ? [{ number, changes: request.changes }] : [],
    );
    if (commits.length > 0) {
      const outcomes = commitOnFullDisk(
        ballast,
        database,
        rows,
        commits.map(({ changes }) => changes),
      );
      tellBallast(ballast);
      for (const [index, { number }] of commits.entries()) {
        const error = outcomes[index];
        post(error === undefined ? { number, value: null } : { number, error: error.toJSON() });
      }
    }
    for (const { number, request } of batch) {
      if (request.kind === "commit") continue;
      if (request.kind === "close") database.close();
      post(answer(rows, number, request));
      if (request.kind === "close") port.close();
    }
  });
  return ballast;
}

/** Says so where the ballast was let go, or made again, since it was told last. */
function tellBallast({ held }: Ballast): void {
  if (held === ballastTold) return;
  ballastTold = held;
  post({ number: BALLAST, value: held });
}

/** Makes the ballast, now or when there is room. */
function keepBallast(ballast: Ballast): void {
  if (!ballast.take()) ballast.giveToLog();
  tellBallast(ballast);
  setInterval(() => {
    ballast.take();
    tellBallast(ballast);
  }, BALLAST_RETRY_MS).unref();
}

function waiting(): NumberedRequest[] {
  const requests: NumberedRequest[] = [];
  while (port !== null && requests.length < GROUP_COMMITS_MAX - 1) {
    const received: { message: unknown } | undefined = receiveMessageOnPort(port);
    if (received === undefined) break;
    requests.push(received.message as NumberedRequest);
  }
  return requests;
}

type Read = Exclude<StoreRequest, { kind: "commit" }>;

function answer(rows: Rows, number: number, request: Read): NumberedAnswer {
  try {
    return { number, value: read(rows, request) };
  } catch (error) {
    return { number, error: transactionError(error).toJSON() };
  }
}

function read(rows: Rows, request: Read): unknown {
  const { agents, checkpoints, connections, events, keys, requests } = rows;
  switch (request.kind) {
    case "agent":
      return agents.byId(request.id);
    case "agentByName":
      return agents.byName(request.tenant, request.name);
    case "listAgents":
      return agents.list(request.query);
    case "allAgents":
      return agents.all();
    case "agentsByAge":
      return agents.byAge(request.query);
    case "due":
      return agents.due(request.limit);
    case "unsettledAgents":
      return agents.unsettled();
    case "lastAsleep":
      return agents.lastAsleep(request.limit);
    case "agentIds":
      return agents.ids(request.after, request.limit);
    case "checkpoints":
      return checkpoints.ofAgent(request.agent);
    case "checkpointPage":
      return checkpoints.page(request.query);
    case "checkpoint":
      return checkpoints.byId(request.id);
    case "connectionPage":
      return connections.page(request.query);
    case "unmediatedSince":
      return connections.unmediatedSince(request.agent, request.atMs);
    case "events":
      return events.page(request.query);
    case "key":
      return keys.byId(request.id);
    case "keyByName":
      return keys.byName(request.tenant, request.name);
    case "keys":
      return keys.list(request.query);
    case "request":
      return requests.byKey(request.principal, request.key);
    case "close":
      return null;
  }
}
