/**
 * Asleep: what 200 sleeping agents have in processes. Counted in /proc: everything that the daemon started,
 * and everything whose arguments name its data directory, against the same without any agent. One was there
 * before and was removed: from its first VM on the daemon keeps one shell ready that becomes the next.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { found, judged, metric, type Findings } from "../benchmark.ts";
import { Agent } from "../ours/agent.ts";
import type { Daemon } from "../ours/daemon.ts";
import { startDaemon, type Field } from "../ours/field.ts";
import { descendants, findProcesses } from "../proc.ts";

const AGENTS = 200;
/** After a start the shell for the next one is made within that. */
const SHELL_MS = 2_000;

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
  await sleep(SHELL_MS);
  const before = countProcesses(daemon);
  const sleeps: number[] = [];
  for (let i = 0; i < AGENTS; i++) {
    const agent = await Agent.create(daemon, shape);
    sleeps.push(await agent.sleep());
    if ((i + 1) % 20 === 0) context.progress(`asleep ${i + 1}/${AGENTS}`);
  }
  await sleep(SHELL_MS);
  const left = countProcesses(daemon) - before;
  // A count that sees no VM while one runs would prove nothing.
  await Agent.create(daemon, shape);
  await sleep(SHELL_MS);
  const awake = countProcesses(daemon) - before - left;
  if (awake < 1) throw new Error("An awake agent has no process");
  return found({
    metrics: {
      asleep200_sleep: metric("ms", sleeps),
      asleep200_processes_of_one_awake: metric("count", [awake]),
    },
    bars: [judged(limit, left)],
  });
}

/** But for the daemon itself. */
function countProcesses(daemon: Daemon): number {
  const named = findProcesses((argument) => argument.includes(`${daemon.home}/`));
  const all = new Set([...descendants(daemon.pid), ...named]);
  all.delete(daemon.pid);
  return all.size;
}
