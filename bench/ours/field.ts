/** Where a part of a benchmark works that needs no stock guest: folder, size of agents, daemons of its own. */
import { mkdir } from "node:fs/promises";
import path from "node:path";
import type { Context } from "../benchmark.ts";
import type { Cleanup } from "../cleanup.ts";
import { diskUsage } from "../disk-usage.ts";
import { Agent, type AgentPlan } from "./agent.ts";
import { openBenchFolder } from "./bench-folder.ts";
import { Daemon, type DaemonOptions } from "./daemon.ts";

const MIB = 1024 * 1024;

export interface Field {
  readonly context: Context;
  /** What a part adds is undone at its end. */
  readonly cleanup: Cleanup;
  readonly folder: string;
  /** 512 MiB, 1 CPU, 8 GiB of disk. */
  readonly shape: AgentPlan;
}

export async function openField(context: Context): Promise<(cleanup: Cleanup) => Field> {
  const folder = await openBenchFolder(context.cleanup);
  const shape = { memoryBytes: 512 * MIB, diskBytes: 8 * 1024 * MIB };
  return (cleanup) => ({ context, cleanup, folder, shape });
}

let homes = 0;

/** A daemon over a new data directory, which has taken over its template already. */
export async function startDaemon(field: Field, options: DaemonOptions = {}): Promise<Daemon> {
  const home = path.join(field.folder, `home-${homes++}`);
  await mkdir(home, { mode: 0o711 });
  const daemon = await Daemon.start(home, field.cleanup, options);
  await (await Agent.create(daemon, field.shape)).remove();
  return daemon;
}

/** What the data directory has on the disk; not what runs: sockets, logs. */
export function storedBytes({ home }: Daemon): Promise<number> {
  return diskUsage(home, { without: ["run", "daemon.out"] });
}
