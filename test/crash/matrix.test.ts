/**
 * The crash matrix: the daemon, the VM, or both are killed with SIGKILL at a named durable step of a
 * verb; a new daemon starts; then I1–I3 must hold and the agent must be usable.
 *
 * Ground truth is a program inside that counts in memory (tmpfs) and on disk (O_SYNC) in lock step,
 * read through the product only after the restart, and the host's own process table.
 *
 * Tier `test` draws a few of the cases, `ci` more, `soak` takes all; the seed is in the title.
 */
import { readdirSync, readlinkSync } from "node:fs";
import { afterAll, afterEach, describe, expect, test } from "vitest";
import { steps, type Step } from "@perdure/daemon/core/step.ts";
import { DaemonUnderTest, until } from "../e2e/daemon-under-test.ts";
import { counter } from "../e2e/guest-program.ts";

/** From the verb's end until the daemon's process is gone. */
const GONE_MS = 20_000;
/** A verb takes seconds; one that takes this long hangs. */
const ANSWER_MS = 200_000;

type Target = "daemon" | "vmm" | "both";

interface Case {
  readonly step: Step;
  readonly target: Target;
}

const tier = process.env["PERDURE_TIER"] ?? "test";
const seed = Number(process.env["PERDURE_SEED"] ?? "1");
const sampleSizes: Readonly<Record<string, number>> = { test: 10, ci: 40 };

const all: Case[] = steps.flatMap((step) =>
  (["daemon", "vmm", "both"] as const).map((target) => ({ step, target })),
);
/** `PERDURE_CASE=<step>:<target>` runs that one alone. */
const only = process.env["PERDURE_CASE"];
const drawn =
  only === undefined
    ? sample(all, sampleSizes[tier] ?? all.length, seed)
    : all.filter(({ step, target }) => `${step}:${target}` === only);

/** Exports of agents that are gone, by the name under which they come back. */
const files = new Map<string, Buffer>();

describe(`C23 crash matrix, tier ${tier}, seed ${seed}`, () => {
  const under = new DaemonUnderTest();
  let number = 0;

  // Whatever a case did, the next one starts its daemon itself.
  afterEach(() => under.kill());
  afterAll(async () => {
    await under.start();
    expect(await under.end()).toEqual([]);
  });

  test.each(drawn)(
    "C23 killing $target at $step leaves one machine or one checkpoint",
    async (c) => {
      const name = `c${++number}`;
      const verb = c.step.slice(0, c.step.indexOf("."));
      await under.start();
      const before = await setUp(under, verb, name);
      await under.restart({
        PERDURE_CRASH: `${c.step}:${c.target}`,
        ...(c.step === "sleep.base-written" ? { PERDURE_OWN_BASE_ABOVE: "0" } : {}),
      });
      const answer = await act(under, verb, name);
      if (c.target === "vmm") await under.kill();
      else await goneOf(under, answer);
      await under.start();
      await check(under, verb, name, before);
      if (verb === "fork") await checkFork(under, `${name}-fork`);
      const left = await under.client.remove(name).catch((error: unknown) => error);
      expect(left === undefined || isGone(left) || isRemoved(left)).toBe(true);
    },
  );
});

/** Brings an agent to where `verb` begins. Returns the count it had reached there. */
async function setUp(under: DaemonUnderTest, verb: string, name: string): Promise<number> {
  const { client } = under;
  if (verb === "create") return 0;
  if (verb === "import") return setUpImport(under, name);
  await client.create({ name });
  await client.exec(name, ["/usr/bin/python3", "-c", counter], { user: "user" });
  await until("the first counts", async () => (await ramCount(under, name)) > 2);
  if (verb === "recover") {
    await client.checkpoint(name);
    const reached = await ramCount(under, name);
    for (const pid of under.vmPids()) process.kill(pid, "SIGKILL");
    await until("the crash to be seen", async () => (await client.show(name)).state === "failed");
    // The checkpoint was taken before this count was read.
    return reached - reached;
  }
  const reached = await ramCount(under, name);
  if (verb === "restore") await frozenInTime(() => client.checkpoint(name, { name: "kept" }));
  if (verb === "wake") await client.sleep(name);
  if (verb === "flatten") {
    await client.sleep(name);
    // More than the layer below holds, so that the two become one.
    await under.sh(name, "head -c 16777216 /dev/urandom > /home/user/large; sync");
    await client.sleep(name);
  }
  if (verb === "cold-start") await client.stop(name);
  return reached;
}

/** A file of an agent that counted, and is removed. */
async function setUpImport(under: DaemonUnderTest, name: string): Promise<number> {
  const { client } = under;
  const reached = await setUp(under, "sleep", `${name}-origin`);
  await client.sleep(`${name}-origin`);
  const { bytes } = await client.export(`${name}-origin`, { inClear: true });
  files.set(name, Buffer.concat(await Array.fromAsync(bytes)));
  await client.remove(`${name}-origin`);
  return reached;
}

/** The daemon must have ended itself: a verb that came to its own end never reached the step. */
async function goneOf(under: DaemonUnderTest, answer: string): Promise<void> {
  await under.gone(GONE_MS).catch((error: unknown) => {
    throw new Error(`The step was not reached; the verb ended with: ${answer}`, { cause: error });
  });
}

/** Runs the verb that will be cut short. What it answers, or nothing, is for messages alone. */
async function act(under: DaemonUnderTest, verb: string, name: string): Promise<string> {
  const { client } = under;
  const calls: Readonly<Record<string, () => Promise<unknown>>> = {
    create: () => client.create({ name }),
    sleep: () => client.sleep(name),
    checkpoint: () => frozenInTime(() => client.checkpoint(name, { name: "kept" })),
    wake: () => client.wake(name),
    stop: () => client.stop(name),
    "cold-start": () => client.start(name),
    recover: () => client.recover(name),
    restore: () => client.restore(name, "kept"),
    import: async () => {
      await client.import(name, files.get(name) ?? Buffer.alloc(0));
      await client.wake(name);
    },
    fork: () => frozenInTime(() => client.fork(name, `${name}-fork`)),
    flatten: () => client.gc(name),
    remove: () => client.remove(name),
  };
  const call = calls[verb];
  if (call === undefined) throw new Error(`There is no verb "${verb}"`);
  const late = new Promise<string>((settled) => {
    setTimeout(() => settled("nothing, for too long"), ANSWER_MS).unref();
  });
  return Promise.race([call().then(() => "success", String), late]);
}

/** A workload that does not freeze in time refuses a named checkpoint: on a busy host, ask again. */
async function frozenInTime<T>(checkpoint: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await checkpoint();
    } catch (error) {
      const late = error instanceof Error && "code" in error && error.code === "freeze_timeout";
      if (!late || tries === 5) throw error;
    }
  }
}

/** I1–I3 after the restart, and that the agent goes on. */
async function check(
  under: DaemonUnderTest,
  verb: string,
  name: string,
  before: number,
): Promise<void> {
  const { client } = under;
  const found = await client.show(name).catch((error: unknown) => error);
  if (isGone(found)) {
    expect(["create", "import", "remove"]).toContain(verb);
    if (verb === "import") expect(under.storedAgents()).toEqual([]);
    return;
  }
  const agent = await client.show(name);
  expect(["awake", "asleep", "stopped", "failed"]).toContain(agent.state);
  const machines = leasedMachines(under, agent.id);
  expect(machines).toBe(agent.state === "awake" ? 1 : 0);
  const { generation } = agent;
  if (agent.state === "stopped") await client.start(name);
  else await client.wake(name);
  const now = await client.show(name);
  expect(now.state).toBe("awake");
  expect(now.generation).toBe(agent.state === "awake" ? generation : generation + 1);
  if (verb === "create") {
    expect(await under.sh(name, "echo alive")).toBe("alive");
    return;
  }
  await checkCounts(under, name, before);
}

/** A fork that was not answered is gone, or it is an agent like any other. */
async function checkFork(under: DaemonUnderTest, name: string): Promise<void> {
  const { client } = under;
  const found = await client.show(name).catch((error: unknown) => error);
  if (isGone(found)) return;
  await client.wake(name);
  expect(await under.sh(name, "hostname")).toBe(name);
  await client.remove(name);
}

/** RAM and disk are one cut, and neither is older than what was answered before the verb. */
async function checkCounts(under: DaemonUnderTest, name: string, before: number): Promise<void> {
  const disk = Number(await under.sh(name, "cat /home/user/count"));
  const ram = Number(await under.sh(name, "cat /dev/shm/count 2>/dev/null || echo 0"));
  if (ram === 0) {
    // A route without memory: the disk alone must have every count that was written with O_SYNC.
    expect(disk).toBeGreaterThanOrEqual(before);
    return;
  }
  expect(ram).toBeGreaterThanOrEqual(before);
  await until("the program inside to go on", async () => (await ramCount(under, name)) > ram);
  const pair = await under.sh(
    name,
    "kill -STOP $(pgrep -f [o]s.pwrite); sleep 0.1; cat /dev/shm/count; echo; cat /home/user/count; kill -CONT $(pgrep -f [o]s.pwrite)",
  );
  const [ramNow = 0, diskNow = 0] = pair.split("\n").map(Number);
  expect(ramNow - diskNow).toBeGreaterThanOrEqual(0);
  expect(ramNow - diskNow).toBeLessThanOrEqual(1);
}

async function ramCount(under: DaemonUnderTest, name: string): Promise<number> {
  return Number(await under.sh(name, "cat /dev/shm/count 2>/dev/null || echo 0"));
}

/** VM processes that have a disk layer of this agent open. */
function leasedMachines(under: DaemonUnderTest, agent: string): number {
  return under.vmPids().filter((pid) => {
    try {
      return readdirSync(`/proc/${pid}/fd`).some((fd) =>
        readlinkSync(`/proc/${pid}/fd/${fd}`).startsWith(`${under.home}/agents/${agent}/`),
      );
    } catch {
      return false;
    }
  }).length;
}

function isGone(value: unknown): boolean {
  return value instanceof Error && "code" in value && value.code === "agent_not_found";
}

function isRemoved(value: unknown): boolean {
  return (
    typeof value === "object" && value !== null && "state" in value && value.state === "removed"
  );
}

/** `count` of `from` in seeded order (xorshift32 for the shuffle). */
function sample<T>(from: readonly T[], count: number, from32: number): T[] {
  let state = (from32 | 0) === 0 ? 1 : from32 | 0;
  const next = (): number => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return state >>> 0;
  };
  const pool = [...from];
  const result: T[] = [];
  while (pool.length > 0 && result.length < count) {
    result.push(...pool.splice(next() % pool.length, 1));
  }
  return result;
}
