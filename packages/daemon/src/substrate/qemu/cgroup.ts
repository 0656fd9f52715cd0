/**
 * A control group per VM process, outside of the daemon's own, so that stopping the daemon ends no VM
 * and a VM cannot take the host's memory. Version 1 and 2; where neither can be made VMs run without.
 *
 * The base's page cache is charged to the group whose process touched it first. It is clean, so the
 * kernel gives it up under pressure: it does not count against a VM's limit in effect.
 */
import { mkdir, readFile, readdir, rmdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import type { MachineShape } from "@perdure/protocol";
import { qemuLimits } from "./limit.ts";

export type CgroupKind = "v1" | "v2" | "none";

export interface Cgroups {
  readonly kind: CgroupKind;
  /** Why there are none, for `doctor`. */
  readonly reason: string;
  /** Makes a process's groups; returns the files that it writes its pid to. Idempotent. */
  make(name: string, shape: MachineShape): Promise<string[]>;
  /** Removes them once they are empty. Idempotent. */
  remove(name: string): Promise<void>;
  /** Names that exist, of machines that may be gone. */
  list(): Promise<string[]>;
  /** Removes the home's own group unless machines are in it. It comes back with the next machine. */
  close(): Promise<void>;
}

const CPU_PERIOD_US = 100_000;

/**
 * A virtual CPU weighs like a thread beside the home's other VMs. All of them together weigh like one, as groups
 * do by default: with more, the daemon's loop is held up where many wake at once.
 */
const THREAD_SHARES_V1 = 1024;
const THREAD_WEIGHT_V2 = 100;

/** Settings by controller: the file in version 1, in version 2, and the value. */
function settings(shape: MachineShape): readonly {
  readonly controller: string;
  readonly v1: readonly (readonly [string, number])[];
  readonly v2: readonly (readonly [string, string])[];
}[] {
  const memory = shape.memoryBytes + qemuLimits.memoryOverheadBytes;
  const quota = CPU_PERIOD_US * (shape.cpus + qemuLimits.cpuOverheadPercent / 100);
  return [
    {
      controller: "memory",
      v1: [["memory.limit_in_bytes", memory]],
      v2: [["memory.max", String(memory)]],
    },
    {
      controller: "cpu",
      v1: [
        ["cpu.cfs_period_us", CPU_PERIOD_US],
        ["cpu.cfs_quota_us", quota],
        ["cpu.shares", THREAD_SHARES_V1 * shape.cpus],
      ],
      v2: [
        ["cpu.max", `${quota} ${CPU_PERIOD_US}`],
        ["cpu.weight", String(THREAD_WEIGHT_V2 * shape.cpus)],
      ],
    },
    {
      controller: "pids",
      v1: [["pids.max", qemuLimits.threadsMax]],
      v2: [["pids.max", String(qemuLimits.threadsMax)]],
    },
  ];
}

/** @param homeId names the parent group, so that homes do not remove each other's */
export async function openCgroups(homeId: string, root = "/sys/fs/cgroup"): Promise<Cgroups> {
  const parent = `perdure-${homeId}`;
  const names = ["memory", "cpu", "pids"];
  if (await holds(join(root, "cgroup.controllers"), names)) {
    const enable = names.map((name) => `+${name}`).join(" ");
    const folder = join(root, parent);
    return usable("v2", [folder], {
      async prepare() {
        await mkdir(folder, { recursive: true });
        await writeFile(join(root, "cgroup.subtree_control"), enable);
        await writeFile(join(folder, "cgroup.subtree_control"), enable);
      },
      async limit(at, shape) {
        for (const { v2 } of settings(shape)) {
          for (const [file, value] of v2) await writeFile(join(at, file), value);
        }
      },
    });
  }
  const folders = names.map((name) => join(root, name, parent));
  return usable("v1", folders, {
    async prepare() {
      for (const name of names) {
        if (!(await holds(join(root, name, "cgroup.procs"), []))) {
          throw new Error(`there is no controller "${name}"`);
        }
        await mkdir(join(root, name, parent), { recursive: true });
      }
    },
    async limit(at, shape) {
      const own = settings(shape).find(({ controller }) => at.startsWith(join(root, controller)));
      for (const [file, value] of own?.v1 ?? []) await writeFile(join(at, file), String(value));
    },
  });
}

interface Hierarchy {
  /** Makes the parent groups. Idempotent. */
  prepare(): Promise<void>;
  limit(at: string, shape: MachineShape): Promise<void>;
}

async function usable(
  kind: "v1" | "v2",
  parents: readonly string[],
  hierarchy: Hierarchy,
): Promise<Cgroups> {
  try {
    await hierarchy.prepare();
    return groups(kind, parents, hierarchy);
  } catch (error) {
    return none(`Control groups ${kind} cannot be used: ${(error as Error).message}`);
  }
}

function groups(kind: "v1" | "v2", parents: readonly string[], hierarchy: Hierarchy): Cgroups {
  return {
    kind,
    reason: "",
    async make(name, shape) {
      await hierarchy.prepare();
      const folders = parents.map((parent) => join(parent, name));
      for (const folder of folders) {
        await mkdir(folder, { recursive: true });
        await hierarchy.limit(folder, shape);
      }
      return folders.map((folder) => join(folder, "cgroup.procs"));
    },
    async remove(name) {
      for (const parent of parents) await removeEmpty(join(parent, name));
    },
    async list() {
      const found = new Set<string>();
      for (const parent of parents) {
        for (const entry of await readdir(parent, { withFileTypes: true }).catch(() => [])) {
          if (entry.isDirectory()) found.add(entry.name);
        }
      }
      return [...found];
    },
    async close() {
      for (const parent of parents) await rmdir(parent).catch(() => undefined);
    },
  };
}

/** A group is busy for a moment after its last process ended; `sweep` comes by for what stays. */
async function removeEmpty(folder: string): Promise<void> {
  for (let tries = 0; tries < 50; tries++) {
    try {
      await rmdir(folder);
      return;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EBUSY") return;
      await wait(4);
    }
  }
}

function none(reason: string): Cgroups {
  return {
    kind: "none",
    reason,
    make: () => Promise.resolve([]),
    remove: () => Promise.resolve(),
    list: () => Promise.resolve([]),
    close: () => Promise.resolve(),
  };
}

async function holds(file: string, words: readonly string[]): Promise<boolean> {
  const text = await readFile(file, "latin1").catch(() => null);
  const found = new Set(text?.trim().split(/\s+/));
  return text !== null && words.every((word) => found.has(word));
}
