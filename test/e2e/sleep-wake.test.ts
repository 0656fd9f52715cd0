/**
 * Sleep and wake as a program inside lives through them. Truth is the host's clock and process table,
 * and what programs inside counted on their own (guest-program.ts).
 */
import { lstatSync, mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Output, ProcessHandle } from "@perdure/sdk";
import { DaemonUnderTest, until } from "./daemon-under-test.ts";
import { AWAY_MS, away, expectRightClock } from "./guest-clock.ts";
import { crash, machinesOf } from "./host-view.ts";
import { counter, lines, parseSteps, stepper, watcher, type Step } from "./guest-program.ts";

/** Five seconds, times four for emulation. */
const SOON_MS = 20_000;

const under = new DaemonUnderTest();
beforeAll(() => under.start());
afterAll(async () => {
  expect(await under.end()).toEqual([]);
});

describe("the wall clock inside", () => {
  test("C01 is right at the first exec after sleep and wake, and after stop and start", async () => {
    const { client } = under;
    await Promise.all([client.create({ name: "slept" }), client.create({ name: "stopped" })]);
    await client.sleep("slept");
    await client.stop("stopped");
    await away();
    await client.wake("slept");
    await expectRightClock(under, "slept");
    await client.start("stopped");
    await expectRightClock(under, "stopped");
    await client.remove("stopped");
  });

  test("C01 is right after a live checkpoint, and after a daemon that died in the middle of one", async () => {
    const { client } = under;
    await client.checkpoint("slept");
    await expectRightClock(under, "slept");

    await under.restart({ PERDURE_CRASH: "checkpoint.layer-switched:daemon" });
    await under.client.checkpoint("slept").catch(() => undefined);
    await under.gone();
    await away();
    await under.start();
    expect((await under.client.show("slept")).state).toBe("awake");
    await expectRightClock(under, "slept");
    await under.client.remove("slept");
  });
});

describe("randomness and identity", () => {
  test("C03 two creates from one template: other numbers from the first instruction, another computer", async () => {
    const { client } = under;
    const first = `
      head -c 32 /dev/urandom | sha256sum; cat /proc/sys/kernel/random/uuid
      cat /etc/machine-id; cat /proc/sys/kernel/hostname; cat /proc/sys/kernel/random/boot_id`;
    const facts = [];
    for (const name of ["twin-a", "twin-b"]) {
      await client.create({ name });
      facts.push((await under.sh(name, first)).split("\n"));
    }
    const [a = [], b = []] = facts;
    expect(a).toHaveLength(5);
    expect(b).toHaveLength(5);
    for (const [at, fact] of a.entries()) expect(fact).not.toBe(b[at]);
    expect([a[3], b[3]]).toEqual(["twin-a", "twin-b"]);
    await client.remove("twin-b");
  });

  test("C03 two continuations of one checkpoint draw different numbers from the first step", async () => {
    const { client } = under;
    await client.exec("twin-a", ["/usr/bin/python3", "-c", stepper], { user: "root" });
    await until("the first steps", async () => (await steps("twin-a")).length > 5);
    const { id } = await client.sleep("twin-a");
    await client.wake("twin-a");
    const first = await stepsOf("twin-a", 2);
    await crash(under, id);
    await until(
      "the crash to be seen",
      async () => (await client.show("twin-a")).state === "failed",
    );
    const { report } = await client.wake("twin-a");
    expect(report?.route).toBe("recover");
    const second = await stepsOf("twin-a", 3);
    const count = Math.min(first.length, second.length);
    expect(count).toBeGreaterThan(3);
    expect(second[0]?.number).toBeLessThanOrEqual((first[0]?.number ?? 0) + 1);
    const drawn = new Set(first.map((step) => step.drawn));
    expect(second.filter((step) => drawn.has(step.drawn))).toEqual([]);
    await client.remove("twin-a");
  });
});

describe("programs inside learn of the resume", () => {
  test("C04 by the generation file, by its event, and by hooks, all before they run on", async () => {
    const { client } = under;
    await client.create({ name: "told" });
    // Two looks at the steps, apart: the workload must stand still meanwhile.
    const hook = `#!/bin/bash
      tail -n1 /dev/shm/steps > /dev/shm/hook; sleep 0.3; tail -n1 /dev/shm/steps >> /dev/shm/hook
      echo "$PERDURE_GENERATION $(date +%s.%N)" >> /dev/shm/hook`;
    await client.writeFile("told", "/etc/perdure/resume.d/10-look", hook, {
      user: "root",
      mode: 0o755,
    });
    await client.exec("told", ["/usr/bin/python3", "-c", stepper], { user: "root" });
    await client.exec("told", ["/usr/bin/python3", "-c", watcher], { user: "root" });
    await until(
      "the watcher",
      async () => (await under.sh("told", "cat /dev/shm/seen || true")) !== "",
    );
    await client.sleep("told");
    await away();
    const { agent, report } = await client.wake("told");
    const after = await stepsOf("told", agent.generation);
    const all = await steps("told");

    expect(await under.sh("told", "cat /run/perdure/generation")).toBe(String(agent.generation));
    expect(await under.sh("told", "cat /dev/shm/seen")).toBe(`watching\n${agent.generation}`);
    const late = all.filter(({ atMs }) => atMs >= (all[0]?.atMs ?? 0) + AWAY_MS);
    const jump = all.find(({ atMs }, at) => atMs - (all[at - 1]?.atMs ?? atMs) > AWAY_MS - 500);
    expect(jump?.generation).toBe(agent.generation);
    expect(late.filter(({ generation }) => generation !== agent.generation)).toEqual([]);

    const [before, still, ended = ""] = (await under.sh("told", "cat /dev/shm/hook")).split("\n");
    expect(parseSteps(before ?? "")[0]?.generation).toBe(agent.generation - 1);
    expect(still).toBe(before);
    const [generation, endedAt] = ended.split(" ").map(Number);
    expect(generation).toBe(agent.generation);
    expect(after[0]?.atMs).toBeGreaterThan((endedAt ?? Infinity) * 1000);
    expect(report?.checks).toContainEqual(
      expect.objectContaining({ check: "hooks", outcome: "passed" }),
    );
    const inside = JSON.parse(await under.sh("told", "cat /run/perdure/resume.json")) as unknown;
    expect(inside).toMatchObject({ route: "wake", generation: agent.generation });
    await client.remove("told");
  });
});

describe("connections and processes", () => {
  test("C05 an attached stream ends with interrupted, the next call works, output goes on by offset", async () => {
    const { client } = under;
    await client.create({ name: "attached" });
    const handle = await client.exec("attached", ["/usr/bin/python3", "-u", "-c", lines]);
    const reading = read(handle, 0);
    await until("the first lines", async () => {
      const [entry] = await client.processes("attached");
      return (entry?.logEnd ?? 0) > 200;
    });
    const beganMs = performance.now();
    const { id } = await client.sleep("attached");
    const first = await reading;
    expect(performance.now() - beganMs).toBeLessThan(SOON_MS);
    expect(first.last).toMatchObject({ type: "interrupted", offset: first.text.length });
    expect(first.text.length).toBeGreaterThan(200);
    expect(machinesOf(under, id)).toEqual([]);

    expect(await under.sh("attached", "echo first try")).toBe("first try");
    const [entry] = await client.processes("attached");
    expect(entry).toMatchObject({ process: handle.process, running: true });
    const again = read(client.process("attached", handle.process), first.text.length);
    await under.sh("attached", "sleep 0.2; touch /dev/shm/enough");
    const second = await again;
    expect(second.last).toMatchObject({ type: "exit", exitCode: 0 });
    const printed = (first.text + second.text).trimEnd().split("\n");
    expect(printed).toEqual(printed.map((_, at) => `line ${at + 1}`));
    expect(printed.length).toBeGreaterThan(first.text.split("\n").length);
  });

  test("no VM process is left after sleep but one spare, which no agent has", async () => {
    const { client } = under;
    await client.wake("attached");
    const { id } = await client.show("attached");
    expect(machinesOf(under, id)).toHaveLength(1);
    await client.sleep("attached");
    expect(machinesOf(under, id)).toEqual([]);
    expect(under.vmPids().length).toBeLessThanOrEqual(1);
  });

  test("C08 a run directory that was emptied or removed never blocks a wake", async () => {
    const { client } = under;
    const machines = join(under.home, "run", "vm");
    await until("the spare", () => under.vmPids().length === 1);
    for (const folder of readdirSync(machines)) rmSync(join(machines, folder), { recursive: true });
    expect((await client.wake("attached")).agent.state).toBe("awake");
    await client.sleep("attached");
    rmSync(machines, { recursive: true });
    expect((await client.wake("attached")).agent.state).toBe("awake");
    expect(await under.sh("attached", "echo here")).toBe("here");
  });

  test("C08 left-over sockets and a missing run directory never block a daemon and its wakes", async () => {
    await under.client.sleep("attached");
    await under.kill();
    const run = join(under.home, "run");
    rmSync(run, { recursive: true });
    await under.start();
    await under.client.wake("attached");
    await under.client.sleep("attached");
    await under.kill();
    // What a host that lost its power may leave beside the socket: folders of machines.
    const folder = join(run, "vm", "vm_01m8m2mn2t6h3w3k5ryw1nxr1x");
    mkdirSync(join(folder, "io"), { recursive: true });
    for (const path of ["link", "qmp", "io/link", "io/qmp"]) writeFileSync(join(folder, path), "");
    expect(lstatSync(under.socket).isSocket()).toBe(true);
    // Something that is no socket is not a left-over: a daemon that may not replace it ends at once.
    const taken = join(under.home, "taken");
    writeFileSync(taken, "");
    const refused = await under.perdure(["serve", "--socket", taken]);
    expect(refused.code).toBe(2);
    expect(refused.stderr).toContain("it is not a socket (bad_request)");

    await under.start();
    await under.client.wake("attached");
    expect(await under.sh("attached", "echo here")).toBe("here");
    await under.client.remove("attached");
  });
});

describe("memory and disk", () => {
  test("C11 five cycles: the values of all earlier cycles are there, in memory and on disk", async () => {
    const { client } = under;
    await client.create({ name: "cycles" });
    const written: string[] = [];
    for (let cycle = 1; cycle <= 5; cycle++) {
      written.push(`value ${cycle}`);
      await under.sh("cycles", `echo value ${cycle} | tee -a /dev/shm/values >> /root/values`);
      await client.sleep("cycles");
      const { agent } = await client.wake("cycles");
      expect(agent.generation).toBe(cycle + 1);
      // What memory remembers of the disk is dropped, so that the disk itself is read.
      const line = "echo 3 > /proc/sys/vm/drop_caches; cat /dev/shm/values; echo; cat /root/values";
      const kept = await under.sh("cycles", line);
      expect(kept.split("\n\n").map((part) => part.split("\n"))).toEqual([written, written]);
    }
  });

  test("C12 memory and disk are of one instant after wake and recover; the disk alone after stop", async () => {
    const { client } = under;
    // A hook runs before anything thaws: what it reads is the cut itself, the disk past its cache.
    const hook = `#!/bin/bash
      echo 3 > /proc/sys/vm/drop_caches
      echo "$(cat /dev/shm/count) $(cat /home/user/count)" > /dev/shm/cut`;
    await client.writeFile("cycles", "/etc/perdure/resume.d/10-cut", hook, {
      user: "root",
      mode: 0o755,
    });
    await client.exec("cycles", ["/usr/bin/python3", "-c", counter], { user: "user" });
    const seen = async (): Promise<number> =>
      Number(await under.sh("cycles", "cat /dev/shm/count 2>/dev/null || echo 0"));
    await until("the first counts", async () => (await seen()) > 5);
    const expectOneCut = async (atLeast: number): Promise<number> => {
      const cut = (await under.sh("cycles", "cat /dev/shm/cut")).split(" ").map(Number);
      const [ram = 0, disk = 0] = cut;
      expect([ram, ram - 1]).toContain(disk);
      expect(ram).toBeGreaterThanOrEqual(atLeast);
      return ram;
    };

    let least = await seen();
    const { id } = await client.sleep("cycles");
    await client.wake("cycles");
    const cut = await expectOneCut(least);
    await until("the count to go on", async () => (await seen()) > cut);

    least = await seen();
    await client.checkpoint("cycles");
    await crash(under, id);
    await until(
      "the crash to be seen",
      async () => (await client.show("cycles")).state === "failed",
    );
    await client.recover("cycles", { from: "checkpoint" });
    await expectOneCut(least);

    least = await seen();
    await client.stop("cycles");
    await client.start("cycles");
    expect(await seen()).toBe(0);
    expect(Number(await under.sh("cycles", "cat /home/user/count"))).toBeGreaterThanOrEqual(least);
  });
});

async function steps(agent: string): Promise<Step[]> {
  return parseSteps(await under.sh(agent, "cat /dev/shm/steps 2>/dev/null || true"));
}

/** Steps that saw this generation, once there are some. */
async function stepsOf(agent: string, wanted: number): Promise<Step[]> {
  let found: Step[] = [];
  await until(`steps of generation ${wanted}`, async () => {
    found = (await steps(agent)).filter(({ generation }) => generation === wanted);
    return found.length > 5;
  });
  return found;
}

/** Everything from `offset` on, and the event that ended the stream. */
async function read(
  handle: ProcessHandle,
  offset: number,
): Promise<{ text: string; last: Output | undefined }> {
  let text = "";
  let last: Output | undefined;
  for await (const event of handle.output({ offset })) {
    if (event.type === "output") text += Buffer.from(event.bytes).toString();
    last = event;
  }
  return { text, last };
}
