/** Guests and clients that abuse the link: nothing gets out before the let-out, and wakes answer. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { ProcessHandle } from "@perdure/sdk";
import { DaemonUnderTest, until } from "./daemon-under-test.ts";
import { escapee } from "./guest-program.ts";

const wakes = process.env["PERDURE_TIER"] === "soak" ? 60 : 12;
/** Five seconds, times four for emulation. */
const SOON_MS = 20_000;
/** How long the hook keeps the let-out waiting, and how far the guest's clock may be off. */
const HOOK_MS = 2_000;
const CLOCK_ERROR_MS = 250;

const under = new DaemonUnderTest();
beforeAll(() => under.start());
afterAll(async () => {
  expect(await under.end()).toEqual([]);
});

test("C19 a root process outside the workload's cgroup runs before the let-out, and reaches nobody", async () => {
  const { client } = under;
  await client.create({ name: "escaped" });
  const hook = `#!/bin/bash
    date +%s.%N > /dev/shm/hook; sleep ${HOOK_MS / 1000 - 0.3}
    touch /dev/shm/hook-ends; sleep 0.3; date +%s.%N >> /dev/shm/hook`;
  await client.writeFile("escaped", "/etc/perdure/resume.d/10-wait", hook, {
    user: "root",
    mode: 0o755,
  });
  const handle = await client.exec("escaped", ["/usr/bin/python3", "-c", escapee], {
    user: "root",
  });
  await until("the first steps", async () => {
    const [entry] = await client.processes("escaped");
    return (entry?.logEnd ?? 0) > 200;
  });
  const attached = read(handle, 0, "interrupted");
  await client.sleep("escaped");
  const before = await attached;
  expect(before.text).not.toContain("FORGED");

  // Readers that come while the agent wakes are not served before it is let out.
  const waking = client.wake("escaped");
  const readers = Array.from({ length: 4 }, () => read(handle, before.end, "enough"));
  const { agent, report } = await waking;
  expect(agent).toMatchObject({ state: "awake", generation: 2 });
  const all = await Promise.all(readers);
  const [began = 0, ended = 0] = (await under.sh("escaped", "cat /dev/shm/hook"))
    .split("\n")
    .map((line) => Number(line) * 1000);
  expect(ended - began).toBeGreaterThanOrEqual(HOOK_MS - 100);
  for (const { text, firstAtMs } of all) {
    expect(text).not.toContain("FORGED");
    expect(firstAtMs).toBeGreaterThan(ended - CLOCK_ERROR_MS);
    expect(before.text + text).toMatch(/^(step \d+ [\d.]+\n)*(step [\d. ]*)?$/);
  }
  // It did run all the while: what it printed then was read later, from its log.
  const printed = [...(all[0]?.text ?? "").matchAll(/^step \d+ ([\d.]+)$/gm)];
  const during = printed
    .map((match) => Number(match[1]) * 1000)
    .filter((at) => at > began && at < ended);
  expect(during.length).toBeGreaterThan(5);
  expect(Number(await under.sh("escaped", "cat /dev/shm/forged"))).toBeGreaterThan(0);
  expect(report?.checks).toContainEqual(
    expect.objectContaining({ check: "frozen", outcome: "passed" }),
  );
  await client.remove("escaped");
});

describe(`wakes: ${wakes}`, () => {
  test("C1A each wake answers while the link is flooded from both sides and a client stopped reading", async () => {
    const { client } = under;
    await client.create({ name: "flooded" });
    // Outside the workload's cgroup no freeze stops it: the link is full of it at the cut and at the wake.
    const line = "echo $$ > /sys/fs/cgroup/cgroup.procs; exec yes a flood of output";
    const flood = () => client.exec("flooded", ["/bin/bash", "-c", line], { user: "root" });
    const [read1, stalled1, alone] = [await flood(), await flood(), await flood()];
    const sink = await client.exec("flooded", ["/bin/bash", "-c", "cat > /dev/null"], {
      stdin: true,
    });
    const megabyte = Buffer.alloc(1024 * 1024, "x");
    const answeredMs: number[] = [];
    const stop = new AbortController();
    const readers: Promise<void>[] = [];
    for (let wake = 1; wake <= wakes; wake++) {
      // Those who are attached stay so: the sleep ends their streams, read or not.
      await client.sleep("flooded");
      const beganMs = performance.now();
      // All at once: what wakes it, what floods it, and the call that shall be answered.
      const waking = client.wake("flooded");
      readers.push(consume(read1), stall(stalled1, stop.signal));
      const writes = [1, 2, 3].map(() => sink.writeStdin(megabyte));
      const { agent } = await waking;
      expect(agent.generation).toBe(wake + 1);
      expect(await under.sh("flooded", `echo ${wake}`)).toBe(String(wake));
      answeredMs.push(performance.now() - beganMs);
      // A write that arrives while it falls asleep would keep it awake.
      await Promise.all(writes);
    }
    expect(answeredMs).toHaveLength(wakes);
    expect(Math.max(...answeredMs)).toBeLessThan(SOON_MS);
    const running = (await client.processes("flooded")).filter((entry) => entry.running);
    expect(running.map((entry) => entry.process)).toEqual([
      ...[read1, stalled1, alone, sink].map((handle) => handle.process),
    ]);
    stop.abort();
    await client.sleep("flooded");
    await Promise.all(readers);
  });
});

interface Reading {
  readonly text: string;
  /** Offset after the last byte. */
  readonly end: number;
  /** By the host's clock. */
  readonly firstAtMs: number;
}

/** Output from `offset` on: until the stream is interrupted, or until a second's worth was read. */
async function read(
  handle: ProcessHandle,
  offset: number,
  endsAt: "interrupted" | "enough",
): Promise<Reading> {
  let text = "";
  let firstAtMs = Infinity;
  for await (const event of handle.output({ offset })) {
    if (event.type !== "output") break;
    firstAtMs = Math.min(firstAtMs, Date.now());
    text += Buffer.from(event.bytes).toString("latin1");
    if (endsAt === "enough" && text.length > 4_000) break;
  }
  return { text, end: offset + text.length, firstAtMs };
}

/** Reads all there is, as fast as it comes, until the agent sleeps. */
async function consume(handle: ProcessHandle): Promise<void> {
  let last = "";
  for await (const { type } of handle.output()) last = type;
  expect(last).toBe("interrupted");
}

/** Attaches, takes one piece, and reads no more. */
async function stall(handle: ProcessHandle, signal: AbortSignal): Promise<void> {
  const output = handle.output();
  await output.next();
  await new Promise<void>((done) => signal.addEventListener("abort", () => done()));
  await output.return(undefined);
}
