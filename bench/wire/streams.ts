/**
 * What 200 streams of one agent do to another's calls. Each stream is a command of E2B's SDK that follows one file inside,
 * to which a line is appended each half a second: it comes out of all of them.
 */
import type { CommandHandle } from "e2b";
import { found, judged, metric, type Findings } from "../benchmark.ts";
import type { Field } from "../ours/field.ts";
import { quantile } from "../statistic.ts";
import { agentOf, openWire, timed, type Wire } from "./client.ts";

const limit = {
  name: "streams200_other_agent_p99_vs_alone",
  what: "a second agent's exec while the first has 200 streams",
  relation: "≤",
  limit: 3.0,
} as const;

const STREAMS = 200;
const OPENED_AT_ONCE = 10;
const CALLS = 300;
const WARM_CALLS = 20;
const FEED = "/home/user/feed";
const WRITE = `while sleep 0.5; do echo line >> ${FEED}; done`;

export async function compareStreams(field: Field): Promise<Findings> {
  const { context } = field;
  const wire = await openWire(field);
  const [first, second] = [await wire.create(), await wire.create()];
  const other = agentOf(second);
  await wire.daemon.quiet(3);
  await calls(wire, other, WARM_CALLS);
  const alone = await calls(wire, other, CALLS / 2);

  const lines = new Array<number>(STREAMS).fill(0);
  const forever = { background: true, timeoutMs: 0, requestTimeoutMs: 0 } as const;
  // Through our SDK: that of E2B has 200 connections at most, and each is a stream.
  const own = agentOf(first);
  const user = { user: "user" };
  await wire.daemon.client.writeFile(own, FEED, "", user);
  const writer = await wire.daemon.client.exec(own, ["/bin/sh", "-c", WRITE], user);
  const streams: CommandHandle[] = [];
  for (let at = 0; at < STREAMS; at += OPENED_AT_ONCE) {
    const some = Array.from({ length: OPENED_AT_ONCE }, (_, i) =>
      first.commands.run(`exec tail -f ${FEED}`, {
        ...forever,
        onStdout: () => void (lines[at + i] = (lines[at + i] ?? 0) + 1),
      }),
    );
    streams.push(...(await Promise.all(some)));
    context.progress(`${streams.length} streams`);
  }
  await wire.daemon.quiet(3);
  const before = [...lines];
  const among = await calls(wire, other, CALLS);
  const silent = lines.filter((count, i) => count === before[i]).length;
  if (silent > 0) throw new Error(`${silent} streams said nothing`);

  await Promise.all(streams.map((stream) => stream.disconnect()));
  await writer.signal(9);
  await wire.daemon.client.run(own, ["/usr/bin/pkill", "tail"], user);
  await wire.daemon.quiet(3);
  alone.push(...(await calls(wire, other, CALLS / 2)));
  const ratio = quantile(among, 0.99) / quantile(alone, 0.99);
  return found({
    metrics: { exec_alone: metric("ms", alone), exec_beside_200_streams: metric("ms", among) },
    ratios: { streams200_other_agent_p99_vs_alone: ratio },
    bars: [judged(limit, ratio)],
  });
}

async function calls({ daemon }: Wire, agent: string, count: number): Promise<number[]> {
  const times: number[] = [];
  for (let i = 0; i < count; i++) {
    times.push(await timed(() => daemon.client.run(agent, ["/bin/true"], { user: "user" })));
  }
  return times;
}
