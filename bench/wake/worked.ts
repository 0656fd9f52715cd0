/**
 * Worked: an agent that was given a repository, ran its tests and went idle. Its packs must not be much
 * larger than what its programs hold; a page cache that the disk has anyway is not worth storing.
 */
import { execFile } from "node:child_process";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { bar, metric, found, type Findings } from "../benchmark.ts";
import { diskUsage } from "../disk-usage.ts";
import { run } from "../inside.ts";
import { Agent } from "../ours/agent.ts";
import { median } from "../statistic.ts";
import type { Place } from "./bench-place.ts";

const MODULES = 40;
const FUNCTIONS = 25;
const IDLE_MS = 3_000;
const SAMPLES_MAX = 5;
const at = "/home/user/repository";

export async function measureWorked({ context, daemon, shape, stock }: Place): Promise<Findings> {
  const archive = await makeRepository(stock.folder);
  const [packs, used, ratios]: [number[], number[], number[]] = [[], [], []];
  for (let i = 0; i < Math.min(context.runs, SAMPLES_MAX); i++) {
    const agent = await Agent.create(daemon, shape);
    await agent.writeFile("/home/user/repository.tar", archive);
    await run(agent, ["sh", "-c", unpack]);
    await run(agent, ["sh", "-c", `cd ${at} && python3 -m unittest discover -q -s tests 2>&1`]);
    await sleep(IDLE_MS);
    const usedBytes = heldBytes(await run(agent, ["cat", "/proc/meminfo"]));
    await agent.sleep();
    // A base of the agent's own would hold what the packs do not.
    const stored = ["packs", "bases"].map((name) => diskUsage(path.join(agent.folder, name)));
    const packBytes = (await Promise.all(stored)).reduce((sum, bytes) => sum + bytes);
    packs.push(packBytes);
    used.push(usedBytes);
    ratios.push(packBytes / usedBytes);
    context.progress(`worked ${i + 1}: packs ${packBytes}, used ${usedBytes}`);
    await agent.remove();
  }
  const value = median(ratios);
  return found({
    metrics: { worked_packs: metric("bytes", packs), worked_used: metric("bytes", used) },
    ratios: { worked_stored_vs_used: value },
    bars: [bar("worked_stored_vs_used", value, 1.5)],
  });
}

const unpack = [
  `mkdir ${at}`,
  `cd ${at}`,
  "tar xf ../repository.tar",
  "rm ../repository.tar",
  "git init -q",
  "git add -A",
  "git -c user.name=agent -c user.email=agent@localhost commit -qm begun",
  "git status --short",
].join(" && ");

/** AnonPages and Shmem of /proc/meminfo. */
export function heldBytes(meminfo: string): number {
  const kib = (field: string): number => {
    const value = new RegExp(`^${field}: +(\\d+) kB$`, "m").exec(meminfo)?.[1];
    if (value === undefined) throw new Error(`/proc/meminfo tells no ${field}`);
    return Number(value);
  };
  return (kib("AnonPages") + kib("Shmem")) * 1024;
}

/** A repository as a tar archive: modules of small functions, and a test for each. */
async function makeRepository(folder: string): Promise<Uint8Array> {
  const root = path.join(folder, "repository");
  await mkdir(path.join(root, "tests"), { recursive: true });
  for (let module = 0; module < MODULES; module++) {
    await writeFile(path.join(root, `part${module}.py`), moduleText(module));
    await writeFile(path.join(root, `tests/test_part${module}.py`), testText(module));
  }
  const file = path.join(folder, "repository.tar");
  await promisify(execFile)("tar", ["cf", file, "-C", root, "."]);
  const bytes = await readFile(file);
  await rm(root, { recursive: true });
  await rm(file);
  return bytes;
}

function moduleText(module: number): string {
  const functions = Array.from({ length: FUNCTIONS }, (_, i) => [
    `def step${i}(values):`,
    `    """Sums what is left of each value after ${module + i + 2}."""`,
    `    return sum(value % ${module + i + 2} for value in values)`,
    "",
  ]);
  return functions.flat().join("\n");
}

function testText(module: number): string {
  const cases = Array.from({ length: FUNCTIONS }, (_, i) => [
    `    def test_step${i}(self):`,
    `        values = list(range(1000))`,
    `        self.assertEqual(part${module}.step${i}(values), sum(v % ${module + i + 2} for v in values))`,
    "",
  ]);
  const head = ["import sys, unittest", 'sys.path.insert(0, ".")', `import part${module}`, "", ""];
  return [...head, `class Part${module}(unittest.TestCase):`, ...cases.flat()].join("\n");
}
