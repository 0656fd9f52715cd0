/** The commands about rest, by the built command, against the real API with commands that need no VM. */
import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { afterEach, beforeEach, expect, it } from "vitest";
import { openFakeServer } from "../../../test/contract/api/fake-server.ts";
import type { FakeServer } from "../../../test/contract/api/fake-server.ts";

const bin = join(import.meta.dirname, "..", "bin", "perdure.mjs");
let folder: string;
let fake: FakeServer;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "perdure-rest-"));
  fake = await openFakeServer(join(folder, "run", "perdure.sock"), folder);
});
afterEach(async () => {
  await fake.close();
  await rm(folder, { recursive: true, force: true });
});

async function run(...args: string[]): Promise<{ code: number | null; out: string; err: string }> {
  const child = spawn(process.execPath, [bin, ...args], {
    env: { ...process.env, PERDURE_HOME: folder, PERDURE_AUTOSTART: "0" },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const ended = new Promise<number | null>((resolve) => child.once("close", resolve));
  const [out, err] = await Promise.all([text(child.stdout), text(child.stderr)]);
  return { code: await ended, out, err };
}

const asked = () => fake.commands.executed.at(-1);

it("create and set take times, and never", async () => {
  const rest = ["--idle-after", "never", "--checkpoint-every", "90s"];
  expect((await run("create", "a1", ...rest)).code).toBe(0);
  expect(asked()).toMatchObject({ idleAfterMs: null, checkpointEveryMs: 90_000 });
  await run("set", "a1", "--idle-after", "10m", "--checkpoint-every", "never");
  expect(asked()).toMatchObject({ idleAfterMs: 600_000, checkpointEveryMs: null });
  const before = Date.now();
  await run("set", "a1", "--wake-at", "+2h");
  const { wakeAtMs } = asked() as { wakeAtMs: number };
  expect(wakeAtMs - before).toBeGreaterThanOrEqual(7_200_000);
  await run("set", "a1", "--wake-at", "2031-01-31T08:00:00Z");
  expect(asked()).toMatchObject({ wakeAtMs: Date.UTC(2031, 0, 31, 8) });
  await run("set", "a1", "--wake-at", "never", "--on-crash", "ask");
  expect(asked()).toMatchObject({ wakeAtMs: null, onCrash: "ask" });
  const { out } = await run("show", "a1");
  expect(out).toMatch(/idle after +10 min\n/);
  expect(out).toMatch(/checkpoint every +never\n/);
});

it("set takes no moment beyond the year 9999", async () => {
  await run("create", "a1");
  const { code, err } = await run("set", "a1", "--wake-at", "+99999999h");
  expect(code).not.toBe(0);
  expect(err).toContain("Cannot take --wake-at: it must be before the year 10000");
  expect(asked()).toMatchObject({ kind: "create" });
});

it("set takes a size, and says what is pending", async () => {
  await run("create", "a1");
  const { code, out } = await run("set", "a1", "--memory", "2G", "--cpus", "2", "--disk", "16G");
  expect(code).toBe(0);
  expect(asked()).toMatchObject({ memoryBytes: 2 ** 31, cpus: 2, diskBytes: 2 ** 34 });
  expect(out).toBe('Agent "a1" is changed; from its next cold start on 2 GiB memory, 2 CPU\n');
  expect((await run("show", "a1")).out).toMatch(/memory +512 MiB \(pending: 2 GiB\)\n/);
  const before = fake.commands.executed.length;
  for (const wrong of [
    ["--memory", "64M"],
    ["--cpus", "5"],
    ["--disk", "1G"],
  ]) {
    const refused = await run("set", "a1", ...wrong);
    expect(refused.code).not.toBe(0);
    expect(refused.err).toMatch(/it must be/);
  }
  expect(fake.commands.executed.length).toBe(before);
});

it("set refuses what is no time, and nothing at all", async () => {
  await run("create", "a1");
  const wrong = [["--idle-after", "soon"], ["--wake-at", "tomorrow"], ["--idle-after", "10ms"], []];
  for (const options of wrong) {
    const { code, err } = await run("set", "a1", ...options);
    expect(code).toBe(2);
    expect(err).toMatch(/Write it as|idleAfterMs|give at least one setting/);
  }
});

it("hold, why, quarantine and release say what they did", async () => {
  await run("create", "a1");
  const held = await run("hold", "a1", "--for", "2h", "--reason", "deploying");
  expect(held.out).toMatch(/^Hold 1: agent "a1" stays awake until 20/);
  expect((await run("show", "a1")).out).toMatch(/hold 1 +until .*: deploying\n/);
  expect((await run("hold", "a1", "--end", "1")).out).toBe('Hold 1 of agent "a1" has ended\n');
  const why = await run("why", "a1");
  expect(why.out).toMatch(/^state +awake since .*\nbecause +Nothing needs it/);
  expect((await run("why", "a1", "--json")).out).toMatch(/^\{"state":"awake"/);
  expect((await run("quarantine", "a1")).code).toBe(2);
  expect((await run("quarantine", "a1", "--reason", "odd")).out).toContain("is quarantined");
  expect((await run("release", "a1")).out).toContain("is asleep");
});
