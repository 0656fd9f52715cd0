/**
 * Loaded into the daemon's process by `--import`: collects the garbage of every thread when somebody
 * connects to the socket named by PERDURE_BENCH_GARBAGE, and ends the connection when that is done.
 */
import { rmSync } from "node:fs";
import { createServer } from "node:net";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { BroadcastChannel, isMainThread } from "node:worker_threads";

/** For the other threads to do as they are told. */
const OTHERS_MS = 1_000;
const ROUNDS = 2;

const socketPath = process.env["PERDURE_BENCH_GARBAGE"];
if (socketPath !== undefined) {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  const channel = new BroadcastChannel("perdure-bench-garbage");
  channel.unref();
  if (isMainThread) listen(socketPath, collect, channel);
  else channel.onmessage = collect;
}

function listen(path: string, collect: () => void, channel: BroadcastChannel): void {
  const server = createServer((socket) => {
    socket.on("error", () => undefined);
    let rounds = 0;
    const round = (): void => {
      channel.postMessage("collect");
      collect();
      rounds++;
      setTimeout(() => (rounds < ROUNDS ? round() : socket.end()), OTHERS_MS);
    };
    round();
  });
  // A launcher that hands over to another process loads this, too: the last one is the daemon.
  rmSync(path, { force: true });
  server.listen(path).unref();
}
