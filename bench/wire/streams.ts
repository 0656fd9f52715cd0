/**
 * What 200 streams of one agent do to another's calls. Each stream is a command of E2B's SDK that follows one file inside,
 * to which a line is appended each second: it comes out of all of them.
 */
import { once } from "node:events";
import { Worker } from "node:worker_threads";
import type { Sandbox } from "e2b";
import { found, judged, metric, type Findings } from "../benchmark.ts";
import type { Field } from "../ours/field.ts";
import { quantile } from "../statistic.ts";
import { agentOf, openWire, timed, type Wire } from "./client.ts";
import type { StreamWork } from "./stream-client.ts";

const limit = {
  name: "streams200_other_agent_p99_vs_alone",
  what: "a second agent's exec while the first has 200 streams",
  relation: "≤",
  limit: 3.0,
} as const;

const STREAMS = 200;
const CALLS = 600;
const WARM_CALLS = 20;
const FEED = "/home/user/feed";
const WRITE = `while sleep 1; do echo line >> ${FEED}; done`;

export async function compareStreams(field: Field): Promise<Findings> {
  const wire = await openWire(field);
  const { client } = wire.daemon;
  const [first, second] = [await wire.create(), await wire.create()];
  const [own, other] = [agentOf(first), agentOf(second)];
  await wire.daemon.quiet(3);
  await calls(wire, other, WARM_CALLS);
  const alone = await calls(wire, other, CALLS / 2);

  // Through our SDK: that of E2B has as many connections at most as there are streams.
  const user = { user: "user" };
  await client.writeFile(own, FEED, "", user);
  const writer = await client.exec(own, ["/bin/sh", "-c", WRITE], user);
  const streams = await openStreams(field, wire, first);
  await wire.daemon.quiet(3);
  const before = await linesOf(streams);
  const among = await calls(wire, other, CALLS);
  const after = await linesOf(streams);
  const silent = after.filter((count, i) => count === before[i]).length;
  if (silent > 0) throw new Error(`${silent} streams said nothing`);

  await streams.terminate();
  await writer.signal(9);
  await client.run(own, ["/usr/bin/pkill", "tail"], user);
  await wire.daemon.quiet(3);
  alone.push(...(await calls(wire, other, CALLS / 2)));
  const ratio = quantile(among, 0.99) / quantile(alone, 0.99);
  return found({
    metrics: { exec_alone: metric("ms", alone), exec_beside_200_streams: metric("ms", among) },
    ratios: { streams200_other_agent_p99_vs_alone: ratio },
    bars: [judged(limit, ratio)],
  });
}

async function openStreams({ context, cleanup }: Field, wire: Wire, of: Sandbox): Promise<Worker> {
  const { connection } = wire;
  const workerData: StreamWork = {
    ...{ connection, sandboxId: of.sandboxId, feed: FEED, count: STREAMS },
  };
  const worker = new Worker(new URL("stream-client.ts", import.meta.url), { workerData });
  cleanup.add("streams", async () => {
    await worker.terminate();
  });
  for (let open = 0; open < STREAMS;) {
    [open] = (await once(worker, "message")) as [number];
    context.progress(`${open} streams`);
  }
  return worker;
}

async function linesOf(worker: Worker): Promise<readonly number[]> {
  worker.postMessage("lines");
  const [lines] = (await once(worker, "message")) as [readonly number[]];
  return lines;
}

async function calls({ daemon }: Wire, agent: string, count: number): Promise<number[]> {
  const times: number[] = [];
  for (let i = 0; i < count; i++) {
    times.push(await timed(() => daemon.client.run(agent, ["/bin/true"], { user: "user" })));
  }
  return times;
}
