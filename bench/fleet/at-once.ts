/**
 * Many at once: 50 creates, and 20 wakes, begun in one moment, against one alone times their number over
 * the host's cores. No spares: every VM process is started for its agent. Timed at the client, from the
 * moment in which all were asked for until the answer that came last.
 */
import { found, judged, metric, type Context, type Findings, type Limit } from "../benchmark.ts";
import { Agent, type WakeTimes } from "../ours/agent.ts";
import type { Daemon } from "../ours/daemon.ts";
import { startDaemon, type Field } from "../ours/field.ts";
import { median } from "../statistic.ts";

const CREATES = 50;
const WAKES = 20;
/** Singles before each round of many, so that both meet the same host. */
const SINGLES = 5;
const ROUNDS_MAX = 3;

const createLimit = {
  name: "create50_last_vs_single",
  what: "50 creates at once, the last one, over 50 × single create ÷ cores, both without spares",
  relation: "≤",
  limit: 1.5,
} as const;

const wakeLimit = {
  name: "wakes20_last_vs_single",
  what: "20 wakes at once, the last one, over 20 × single ÷ cores, both without spares",
  relation: "≤",
  limit: 1.5,
} as const;

export async function measureCreates(field: Field): Promise<Findings> {
  const { context } = field;
  const daemon = await startDaemon(field, { spares: 0 });
  const times = new Times(context, "create");
  for (let round = 0; round < rounds(field); round++) {
    for (let i = 0; i < SINGLES; i++) {
      await daemon.quiet(0);
      const { agent, ...created } = await timedCreate(daemon, field);
      times.single(created);
      await agent.remove();
    }
    await daemon.quiet(0);
    const created = await Promise.all(
      Array.from({ length: CREATES }, () => timedCreate(daemon, field)),
    );
    times.many(created);
    for (const { agent } of created) await agent.remove();
  }
  return times.compared(createLimit, CREATES, context.machine.cores);
}

export async function measureWakes(field: Field): Promise<Findings> {
  const { context, shape } = field;
  const daemon = await startDaemon(field, { spares: 0 });
  const agents: Agent[] = [];
  for (let i = 0; i < WAKES; i++) {
    const agent = await Agent.create(daemon, shape);
    await agent.sleep();
    agents.push(agent);
  }
  const times = new Times(context, "wake");
  for (let round = 0; round < rounds(field); round++) {
    for (const agent of agents.slice(0, SINGLES)) {
      await daemon.quiet(0);
      times.single(await agent.wake());
      await agent.sleep();
    }
    await daemon.quiet(0);
    times.many(await Promise.all(agents.map((agent) => agent.wake())));
    for (const agent of agents) await agent.sleep();
  }
  return times.compared(wakeLimit, WAKES, context.machine.cores);
}

function rounds({ context }: Field): number {
  return Math.min(ROUNDS_MAX, Math.ceil(context.runs / SINGLES));
}

async function timedCreate(
  daemon: Daemon,
  { shape }: Field,
): Promise<WakeTimes & { readonly agent: Agent }> {
  const begin = performance.now();
  const agent = await Agent.create(daemon, shape);
  const clientMs = performance.now() - begin;
  return { agent, clientMs, report: await agent.report() };
}

/** What was measured of one verb, alone and many at once. */
class Times {
  readonly #context: Context;
  readonly #verb: string;
  readonly #singles: number[] = [];
  readonly #lasts: number[] = [];
  readonly #middles: number[] = [];

  constructor(context: Context, verb: string) {
    this.#context = context;
    this.#verb = verb;
  }

  single({ clientMs, report }: WakeTimes): void {
    this.#singles.push(clientMs);
    this.#context.progress(`single ${this.#verb}: ${told(clientMs, report)}`);
  }

  /** All were begun in the same moment. */
  many(times: readonly WakeTimes[]): void {
    const sorted = times.toSorted((a, b) => a.clientMs - b.clientMs);
    const last = sorted.at(-1);
    if (last === undefined) throw new Error("Nothing was begun");
    const middle = median(times.map(({ clientMs }) => clientMs));
    this.#lasts.push(last.clientMs);
    this.#middles.push(middle);
    this.#context.progress(
      `${times.length} at once: first ${sorted[0]?.clientMs.toFixed(0) ?? ""} ms, ` +
        `median ${middle.toFixed(0)} ms, last ${told(last.clientMs, last.report)}`,
    );
  }

  compared(limit: Limit, count: number, cores: number): Findings {
    const fair = (count * median(this.#singles)) / cores;
    const ratio = median(this.#lasts) / fair;
    return found({
      metrics: {
        [`${this.#verb}_single`]: metric("ms", this.#singles),
        [`${this.#verb}${count}_last`]: metric("ms", this.#lasts),
        [`${this.#verb}${count}_median`]: metric("ms", this.#middles),
      },
      ratios: { [limit.name]: ratio },
      bars: [judged(limit, ratio)],
    });
  }
}

function told(clientMs: number, { phases }: WakeTimes["report"]): string {
  return `${clientMs.toFixed(0)} ms ${JSON.stringify(phases)}`;
}
