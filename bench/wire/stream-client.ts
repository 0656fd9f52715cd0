/**
 * A worker that holds many streams of one sandbox, as a program of its own would: what it does with them takes nothing from
 * the calls that are timed beside. Says "open" with how many there are; answers every message with the lines of each.
 */
import { parentPort, workerData } from "node:worker_threads";
import { Sandbox, type SandboxOpts } from "e2b";

export interface StreamWork {
  readonly connection: SandboxOpts;
  readonly sandboxId: string;
  readonly feed: string;
  readonly count: number;
}

const OPENED_AT_ONCE = 10;

const { connection, sandboxId, feed, count } = workerData as StreamWork;
const port = parentPort;
if (port === null) throw new Error("It is no worker");

const sandbox = await Sandbox.connect(sandboxId, connection);
const lines = new Array<number>(count).fill(0);
for (let at = 0; at < count; at += OPENED_AT_ONCE) {
  const some = Array.from({ length: OPENED_AT_ONCE }, (_, i) =>
    sandbox.commands.run(`exec tail -f ${feed}`, {
      ...{ background: true, timeoutMs: 0, requestTimeoutMs: 0 },
      onStdout: () => void (lines[at + i] = (lines[at + i] ?? 0) + 1),
    }),
  );
  await Promise.all(some);
  port.postMessage(at + OPENED_AT_ONCE);
}
port.on("message", () => port.postMessage([...lines]));
