/** What befalls a call while it is under way. Each ends with everything able to go on, but for what it killed. */
import { readdirSync, readlinkSync } from "node:fs";
import type { DaemonUnderTest } from "../daemon-under-test.ts";
import { ended, isAlive } from "../host-view.ts";

export interface Hit {
  readonly under: DaemonUnderTest;
  /** Machines of the agent, and of agents that are only being made. */
  readonly machines: () => number[];
  readonly spares: () => number[];
  /** A new daemon. */
  readonly start: () => Promise<void>;
  /** Ends the caller's connections. */
  readonly leave: () => void;
  /** All calls ended. */
  readonly over: Promise<unknown>;
  /** How long a pause lasts. */
  readonly pauseMs: number;
}

export interface Fault {
  /** Draws of it among all. */
  readonly share: number;
  readonly hit: (hit: Hit) => Promise<unknown>;
  /** Memory since the last checkpoint may be lost by it. */
  readonly loses: boolean;
}

/** The deadlines of a verb for a VM that does not answer end before; output of a program has none. */
const STOPPED_MS = 100_000;

export const faults = {
  none: { share: 1, loses: false, hit: () => Promise.resolve() },
  "machine-killed": { share: 6, loses: true, hit: ({ machines }) => killed(machines()) },
  "spare-killed": { share: 1, loses: false, hit: ({ spares }) => killed(spares()) },
  "daemon-killed": {
    share: 4,
    loses: false,
    hit: async ({ under, start }) => {
      await under.kill();
      await start();
    },
  },
  "daemon-ended": {
    share: 2,
    loses: false,
    hit: async ({ under, start }) => {
      await under.kill("SIGTERM");
      await start();
    },
  },
  "both-killed": {
    share: 2,
    loses: true,
    hit: async ({ under, machines, start }) => {
      const gone = killed(machines());
      await under.kill();
      await gone;
      await start();
    },
  },
  // The next daemon finds a VM that does not answer yet.
  "daemon-killed-machine-paused": {
    share: 1,
    loses: false,
    hit: ({ under, machines, pauseMs, start }) =>
      paused(
        machines(),
        under
          .kill()
          .then(() => start())
          .then(() => wait(pauseMs)),
      ),
  },
  "machine-paused": {
    share: 3,
    loses: false,
    hit: ({ machines, pauseMs }) => paused(machines(), wait(pauseMs)),
  },
  "daemon-paused": {
    share: 1,
    loses: false,
    hit: ({ under, pauseMs }) => paused(under.pid === undefined ? [] : [under.pid], wait(pauseMs)),
  },
  // Until the product ends it, or answers without it. What it rightly waits for as long comes back.
  "machine-stopped": {
    share: 1,
    loses: true,
    hit: ({ machines, over }) => paused(machines(), Promise.race([over, wait(STOPPED_MS)])),
  },
  "spare-stopped": {
    share: 1,
    loses: false,
    hit: ({ spares, over }) => paused(spares(), Promise.race([over, wait(STOPPED_MS)])),
  },
  "caller-gone": {
    share: 2,
    loses: false,
    hit: ({ leave }) => {
      leave();
      return Promise.resolve();
    },
  },
} as const satisfies Readonly<Record<string, Fault>>;

export type FaultName = keyof typeof faults;

export function wait(ms: number): Promise<void> {
  return new Promise((next) => setTimeout(next, ms));
}

async function killed(pids: readonly number[]): Promise<void> {
  for (const pid of pids) signal(pid, "SIGKILL");
  await Promise.all(pids.map(ended));
}

async function paused(pids: readonly number[], until: Promise<unknown>): Promise<void> {
  for (const pid of pids) signal(pid, "SIGSTOP");
  await until;
  for (const pid of pids.filter(isAlive)) signal(pid, "SIGCONT");
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // It ended by itself.
  }
}

/** Whose files a VM process has open, by agent id; and whose it may write. */
export function agentsOpen(
  { home }: DaemonUnderTest,
  pid: number,
  flagsOf: (pid: number, fd: string) => number,
): { readonly all: Set<string>; readonly writes: Set<string> } {
  const all = new Set<string>();
  const writes = new Set<string>();
  try {
    for (const fd of readdirSync(`/proc/${pid}/fd`)) {
      const path = readlinkSync(`/proc/${pid}/fd/${fd}`);
      const agent = path.startsWith(`${home}/agents/`)
        ? path.slice(home.length + 8).split("/")[0]
        : "";
      if (agent === undefined || agent === "") continue;
      all.add(agent);
      if ((flagsOf(pid, fd) & 3) !== 0) writes.add(agent);
    }
  } catch {
    // It ended meanwhile.
  }
  return { all, writes };
}
