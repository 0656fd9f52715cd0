/**
 * The store's thread: owns the database. Takes everything that waits in the port at once, commits the
 * transactions among it as a group, then answers the reads, so that no read sees what is not durable.
 */
import { parentPort, receiveMessageOnPort, workerData } from "node:worker_threads";
import { PerdureError } from "@perdure/protocol";
import { prepareAgentRows } from "./agent-rows.ts";
import { prepareCheckpointRows } from "./checkpoint-rows.ts";
import { openDatabase, transactionError } from "./database.ts";
import { commitGroup, GROUP_COMMITS_MAX } from "./group-commit.ts";
import type { Rows } from "./group-commit.ts";
import { OPENED } from "./message.ts";
import type { NumberedAnswer, NumberedRequest, StoreRequest } from "./message.ts";

const port = parentPort;
if (port === null) throw new Error("The store's worker runs in a worker thread only");

const post = (answer: NumberedAnswer): void => port.postMessage(answer);

try {
  serve();
  post({ number: OPENED, value: null });
} catch (error) {
  post({ number: OPENED, error: PerdureError.from(error, "store_failed").toJSON() });
  port.close();
}

function serve(): void {
  const database = openDatabase((workerData as { path: string }).path);
  const rows: Rows = {
    agents: prepareAgentRows(database),
    checkpoints: prepareCheckpointRows(database),
  };
  port?.on("message", (first: NumberedRequest) => {
    const batch = [first, ...waiting()];
    const commits = batch.flatMap(({ number, request }) =>
      request.kind === "commit" ? [{ number, changes: request.changes }] : [],
    );
    if (commits.length > 0) {
      const outcomes = commitGroup(
        database,
        rows,
        commits.map(({ changes }) => changes),
      );
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

function read({ agents, checkpoints }: Rows, request: Read): unknown {
  switch (request.kind) {
    case "agent":
      return agents.byId(request.id);
    case "agentByName":
      return agents.byName(request.tenant, request.name);
    case "listAgents":
      return agents.list(request.query);
    case "allAgents":
      return agents.all();
    case "checkpoints":
      return checkpoints.ofAgent(request.agent);
    case "checkpoint":
      return checkpoints.byId(request.id);
    case "close":
      return null;
  }
}
