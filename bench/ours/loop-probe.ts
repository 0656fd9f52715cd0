/**
 * Loaded into the daemon's process by `--import`: measures how late its main loop is, and tells whoever
 * connects to the socket named by PERDURE_BENCH_PROBE. Each answer is one JSON object and starts anew.
 */
import { rmSync } from "node:fs";
import { createServer } from "node:net";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { isMainThread } from "node:worker_threads";

/** How often the loop is looked at; what a look took longer than this is the delay. */
const RESOLUTION_MS = 5;

const socketPath = process.env["PERDURE_BENCH_PROBE"];
if (isMainThread && socketPath !== undefined) listen(socketPath);

function listen(path: string): void {
  const histogram = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
  histogram.enable();
  const lateMs = (value: number): number => Math.max(0, value / 1e6 - RESOLUTION_MS);
  const server = createServer((socket) => {
    socket.on("error", () => undefined);
    socket.end(
      JSON.stringify({
        p50: lateMs(histogram.percentile(50)),
        p99: lateMs(histogram.percentile(99)),
        max: lateMs(histogram.max),
        count: histogram.count,
      }),
    );
    histogram.reset();
  });
  // A launcher that hands over to another process loads this, too: the last one is the daemon.
  rmSync(path, { force: true });
  server.listen(path).unref();
}
