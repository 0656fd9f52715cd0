/**
 * What the crash suites share: how an agent is brought to where a verb begins, the verb, and what must hold of
 * it after whatever happened at one of its steps.
 *
 * Ground truth is a program inside that counts in memory (tmpfs) and on disk (O_SYNC) in lock step,
 * read through the product only after the verb, and the host's own process table.
 */
import { readdirSync, readlinkSync } from "node:fs";
import { expect } from "vitest";
import { GIB } from "@perdure/protocol";
import { steps, type Step } from "@perdure/daemon/core/step.ts";
import { until, type DaemonUnderTest } from "../e2e/daemon-under-test.ts";
import { counter } from "../e2e/guest-program.ts";
import { sample } from "../fixtures/sample.ts";

/** A disk that is larger than any agent of these tests begins with. */
const GROWN_BYTES = 12 * GIB;
/** A verb takes seconds; one that takes this long hangs. */
const ANSWER_MS = 200_000;

export const tier = process.env["PERDURE_TIER"] ?? "test";
export const seed = Number(process.env["PERDURE_SEED"] ?? "1");
/** `PERDURE_CASE=<step>:<target>,…` runs those alone. */
const only = process.env["PERDURE_CASE"]?.split(",");

export interface Case<Target extends string> {
  readonly step: Step;
  readonly target: Target;
}

/** Of all steps with all targets: a seeded sample of as many as the tier runs, all where it sets no limit. */
export function drawn<Target extends string>(
  targets: readonly Target[],
  sizes: Readonly<Record<string, number>>,
): Case<Target>[] {
  const all = steps.flatMap((step) => targets.map((target) => ({ step, target })));
  if (only !== undefined)
    return all.filter(({ step, target }) => only.includes(`${step}:${target}`));
  return sample(all, sizes[tier] ?? all.length, seed);
}

export function verbOf(step: Step): string {
  return step.slice(0, step.indexOf("."));
}

/** What a step needs to be reached, beside its verb. */
export function settingsFor(step: Step): Record<string, string> {
  return step === "sleep.base-written" ? { PERDURE_OWN_BASE_ABOVE: "0" } : {};
}

/** Exports of agents that are gone, by the name under which they come back. */
const files = new Map<string, Buffer>();

type Verb = (under: DaemonUnderTest, name: string) => Promise<unknown>;

export const verbs: Readonly<Record<string, Verb>> = {
  create: ({ client }, name) => client.create({ name }),
  sleep: ({ client }, name) => client.sleep(name),
  checkpoint: ({ client }, name) => frozenInTime(() => client.checkpoint(name, { name: "kept" })),
  wake: ({ client }, name) => client.wake(name),
  stop: ({ client }, name) => client.stop(name),
  "cold-start": ({ client }, name) => client.start(name),
  recover: ({ client }, name) => client.recover(name),
  restore: ({ client }, name) => client.restore(name, "kept"),
  import: async ({ client }, name) => {
    await client.import(name, files.get(name) ?? Buffer.alloc(0));
    await client.wake(name);
  },
  fork: ({ client }, name) => frozenInTime(() => client.fork(name, `${name}-fork`)),
  flatten: ({ client }, name) => client.gc(name),
  grow: ({ client }, name) => client.configure(name, { diskBytes: GROWN_BYTES }),
  remove: ({ client }, name) => client.remove(name),
};

/** Brings an agent to where `verb` begins. Returns the count it had reached there. */
export async function setUp(under: DaemonUnderTest, verb: string, name: string): Promise<number> {
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

/** Runs the verb that something happens to. The error that it ends in, or null. */
export async function act(under: DaemonUnderTest, verb: string, name: string): Promise<unknown> {
  const call = verbs[verb];
  if (call === undefined) throw new Error(`There is no verb "${verb}"`);
  const late = new Promise<Error>((settled) => {
    setTimeout(() => settled(new Error("No answer for too long")), ANSWER_MS).unref();
  });
  const answer = call(under, name).then(
    () => null,
    (error: unknown) => error,
  );
  return Promise.race([answer, late]);
}

/** Runs the verb of an awake agent, or of none, once more from where it begins. @throws where it fails */
export async function repeat(under: DaemonUnderTest, verb: string, name: string): Promise<void> {
  const { client } = under;
  if (verb === "wake" || verb === "flatten") await client.sleep(name);
  if (verb === "import") {
    await client.remove(name).catch((error: unknown) => {
      if (!isGone(error)) throw error;
    });
  }
  if (verb === "cold-start" || verb === "recover") await client.stop(name);
  await verbs[verb]?.(under, name);
  if (verb === "remove") return;
  if (verb === "grow") await checkGrown(under, name);
  const { state } = await client.show(name);
  expect(state).toBe({ sleep: "asleep", flatten: "asleep", stop: "stopped" }[verb] ?? "awake");
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
export async function check(
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

/** The disk is as large as was asked, and its file system, too. */
export async function checkGrown({ client }: DaemonUnderTest, name: string): Promise<void> {
  const agent = await client.show(name);
  expect(agent).toMatchObject({ shape: { diskBytes: GROWN_BYTES }, pending: null });
}

/** A fork that was not answered is gone, or it is an agent like any other. */
export async function checkFork(under: DaemonUnderTest, name: string): Promise<void> {
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

export function isGone(value: unknown): boolean {
  return value instanceof Error && "code" in value && value.code === "agent_not_found";
}

export function isRemoved(value: unknown): boolean {
  return (
    typeof value === "object" && value !== null && "state" in value && value.state === "removed"
  );
}
