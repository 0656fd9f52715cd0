/**
 * Crowd: a daemon with 10,000 sleeping agents against the same daemon with one. How much more memory it
 * has per agent, and how long a page of the list takes.
 *
 * 9,999 of them are copies (`crowd-fixture.ts`). Memory is what the kernel says is resident, after the
 * daemon's own work at its start is done, its garbage was collected, and the pages of it have gone back; each
 * reading is of a daemon that was started anew.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { found, judged, metric, type Findings, type Metric } from "../benchmark.ts";
import { Agent } from "../ours/agent.ts";
import { Daemon } from "../ours/daemon.ts";
import { startDaemon, type Field } from "../ours/field.ts";
import { cpuTicks, residentBytes } from "../proc.ts";
import { median } from "../statistic.ts";
import { writeCrowd } from "./crowd-fixture.ts";

const AGENTS = 10_000;
const PAGE = 100;
const READINGS_MAX = 3;
const STILL_MS = 3_000;
/** What measures the loop's delay ticks on. */
const STILL_TICKS = 5;
const STILL_WITHIN_MS = 300_000;
/** V8 keeps freed pages for 8 s in case it needs them again. */
const RELEASE_MS = 12_000;

const copied = `${(AGENTS - 1).toLocaleString("en-US")} of them copies of the rows and files of one`;

const memoryLimit = {
  name: "asleep_daemon_bytes_per_agent",
  what: `growth of the daemon's memory per sleeping agent, 10,000 of them (${copied})`,
  relation: "≤",
  limit: 2048,
} as const;

const listLimit = {
  name: "list10k_ms",
  what: `listing 10,000 sleeping agents, one page of 100 by name prefix (${copied})`,
  relation: "≤",
  limit: 100,
} as const;

export async function measureCrowd(field: Field): Promise<Findings> {
  const { context } = field;
  const first = await startDaemon(field, { spares: 0 });
  const agent = await Agent.create(first, field.shape);
  await agent.sleep();
  await first.stop();
  const alone = await startedAnew(field, first.home);
  context.progress(`writing ${AGENTS - 1} sleeping agents`);
  await writeCrowd(first.home, agent.id, crowdNames(AGENTS - 1));
  const crowded = await startedAnew(field, first.home, listed);
  const growth = crowded.map(
    ({ whole }) => (whole - median(alone.map((reading) => reading.whole))) / (AGENTS - 1),
  );
  const lists = crowded.flatMap(({ result }) => result ?? []);
  return found({
    metrics: {
      ...metricsOf("daemon_of_one", alone),
      ...metricsOf("daemon_of_10k", crowded),
      daemon_growth_per_agent: metric("bytes", growth),
      list10k_page: metric("ms", lists),
    },
    bars: [judged(memoryLimit, median(growth)), judged(listLimit, median(lists))],
  });
}

interface Reading<T> {
  readonly whole: number;
  readonly anonymous: number;
  /** From the start of the process until it answered. */
  readonly answersMs: number;
  /** CPU time until its work at the start was done. */
  readonly cpuMs: number;
  readonly result: T | null;
}

/** What a daemon over `home` has in memory, as often as it is read; then what `work` finds. */
async function startedAnew<T>(
  field: Field,
  home: string,
  work: (daemon: Daemon) => Promise<T | null> = () => Promise.resolve(null),
): Promise<Reading<T>[]> {
  const readings: Reading<T>[] = [];
  while (readings.length < Math.min(READINGS_MAX, field.context.runs)) {
    const reading = await field.cleanup.scope("a daemon", async (scope) => {
      const begin = performance.now();
      const daemon = await Daemon.start(home, scope, { spares: 0 });
      const answersMs = performance.now() - begin;
      await still(daemon);
      const cpuMs = cpuTicks(daemon.pid) * 10;
      await daemon.collectGarbage();
      const { whole, anonymous } = await leastResident(daemon);
      return { whole, anonymous, answersMs, cpuMs, result: await work(daemon) };
    });
    field.context.progress(`daemon: ${JSON.stringify(reading)}`);
    readings.push(reading);
  }
  return readings;
}

/** Pages that were freed go back to the system some seconds later: until none has gone for a while. */
async function leastResident({ pid }: Daemon): Promise<ReturnType<typeof residentBytes>> {
  let least = residentBytes(pid);
  for (let unchangedMs = 0; unchangedMs < RELEASE_MS; unchangedMs += RELEASE_MS / 10) {
    await sleep(RELEASE_MS / 10);
    const now = residentBytes(pid);
    if (now.whole >= least.whole) continue;
    least = now;
    unchangedMs = 0;
  }
  return least;
}

/** Until the daemon has used next to no CPU for a while: what it does at its start is done. */
async function still({ pid }: Daemon): Promise<void> {
  const end = performance.now() + STILL_WITHIN_MS;
  for (let before = -1; ;) {
    const now = cpuTicks(pid);
    if (now - before <= STILL_TICKS && before >= 0) return;
    if (performance.now() > end) throw new Error("The daemon does not come to rest");
    before = now;
    await sleep(STILL_MS);
  }
}

/** Pages of 100 by a prefix that 100 agents have, at several places among the 10,000 (the last has 99). */
async function listed({ client }: Daemon): Promise<number[]> {
  const times: number[] = [];
  for (let hundred = 3; hundred < AGENTS / PAGE - 1; hundred += 8) {
    const prefix = crowdName(hundred * PAGE).slice(0, -2);
    const begin = performance.now();
    const { agents } = await client.listPage({ prefix, limit: PAGE });
    times.push(performance.now() - begin);
    const right = agents.every(({ name, state }) => name.startsWith(prefix) && state === "asleep");
    if (agents.length !== PAGE || !right) throw new Error(`A page of ${prefix} is not right`);
  }
  return times;
}

function crowdNames(count: number): string[] {
  return Array.from({ length: count }, (_, i) => crowdName(i));
}

function crowdName(i: number): string {
  return `crowd-${String(i).padStart(5, "0")}`;
}

function metricsOf(name: string, readings: readonly Reading<unknown>[]): Record<string, Metric> {
  return {
    [`${name}_resident`]: metric(
      "bytes",
      readings.map(({ whole }) => whole),
    ),
    [`${name}_anonymous`]: metric(
      "bytes",
      readings.map(({ anonymous }) => anonymous),
    ),
    [`${name}_answers`]: metric(
      "ms",
      readings.map(({ answersMs }) => answersMs),
    ),
    [`${name}_start_cpu`]: metric(
      "ms",
      readings.map(({ cpuMs }) => cpuMs),
    ),
  };
}
