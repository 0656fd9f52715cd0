/**
 * Asleep: what 200 sleeping agents have in processes. Counted in /proc: everything that the daemon started,
 * and everything whose arguments name its data directory, against the same without any agent. One was there
 * before and was removed: the daemon keeps a shell ready from its first VM on, for the start of the next.
 */
import { found, judged, metric, type Findings } from "../benchmark.ts";
import { Agent } from "../ours/agent.ts";
import type { Daemon } from "../ours/daemon.ts";
import { startDaemon, type Field } from "../ours/field.ts";
import { descendants, findProcesses } from "../proc.ts";

const AGENTS = 200;

const limit = {
  name: "asleep200_processes",
  what: "processes of 200 sleeping agents",
  relation: "=",
  limit: 0,
} as const;

export async function measureAsleep(field: Field): Promise<Findings> {
  const { context, shape } = field;
  const daemon = await startDaemon(field, { spares: 0 });
  await (await Agent.create(daemon, shape)).remove();
  await daemon.quiet(0);
  const before = processesOf(daemon);
  const [awake, sleeps]: [number[], number[]] = [[], []];
  for (let i = 0; i < AGENTS; i++) {
    const agent = await Agent.create(daemon, shape);
    awake.push(newSince(before, daemon).length);
    sleeps.push(await agent.sleep());
    if ((i + 1) % 20 === 0) context.progress(`asleep ${i + 1}/${AGENTS}`);
  }
  await daemon.quiet(0);
  const left = newSince(before, daemon);
  // A count that sees no VM while one runs would prove nothing.
  if (!awake.every((count) => count >= 1)) throw new Error("An awake agent has no process");
  return found({
    metrics: {
      asleep200_sleep: metric("ms", sleeps),
      asleep200_processes_while_one_wakes: metric("count", awake),
    },
    bars: [judged(limit, left.length)],
  });
}

function newSince(before: ReadonlySet<number>, daemon: Daemon): number[] {
  return [...processesOf(daemon)].filter((pid) => !before.has(pid));
}

/** But for the daemon itself. */
function processesOf(daemon: Daemon): Set<number> {
  const named = findProcesses((argument) => argument.includes(`${daemon.home}/`));
  const all = new Set([...descendants(daemon.pid), ...named]);
  all.delete(daemon.pid);
  return all;
}
