import { spawn } from "node:child_process";
import { once } from "node:events";
import { describe, expect, test } from "vitest";
import { createSystemClock } from "../../clock.ts";
import { PageBuffers } from "../../core/page-buffers.ts";
import { MemoryWorkers } from "./guest-memory.ts";
import { mayReadMemory } from "./monitor-memory.ts";
import { processUsage } from "./process-usage.ts";
import { identify, isAlive, killAndWait, parseStat, processError } from "./process.ts";

const clock = createSystemClock();

test("a program's name may hold spaces and parentheses", () => {
  const rest = `S 1 ${"0 ".repeat(9)}7 5 0 0 20 0 3 0 4242 ${"0 ".repeat(20)}`;
  expect(parseStat(`12 (a) b (c) ${rest}`)).toEqual({
    state: "S",
    cpuTicks: 12,
    threads: 3,
    startTicks: 4242,
  });
});

test("only the very process is ended", async () => {
  const child = spawn("sleep", ["60"]);
  const identity = await identify(child.pid ?? 0);
  const stranger = { ...identity, startTicks: identity.startTicks - 1 };
  await killAndWait(stranger, clock);
  expect(await isAlive(identity)).toBe(true);
  const ended = once(child, "exit");
  await killAndWait(identity, clock);
  expect(await isAlive(identity)).toBe(false);
  await killAndWait(identity, clock);
  await ended;
});

describe("a process that has ended", () => {
  const gone = { pid: 2 ** 22 + 1, startTicks: 1 };

  test.each([
    [
      "its memory is scanned",
      (workers: MemoryWorkers) => workers.scan({ process: gone, areas: [] }),
    ],
    ["its memory is looked into", () => mayReadMemory(gone)],
    ["its usage is read", () => processUsage(gone)],
  ])("is said to have, with the system's word as the cause: %s", async (_, work) => {
    const workers = new MemoryWorkers(new PageBuffers());
    try {
      await expect(work(workers)).rejects.toMatchObject({
        code: "machine_failed",
        message: expect.stringMatching(
          /^Cannot [a-z ]+ VM process[a-z ]*: it has ended$/,
        ) as string,
        cause: { message: expect.stringContaining("ENOENT") as string },
      });
    } finally {
      await workers.close();
    }
  });
});

test("of a process that lives, what the system refused is said", async () => {
  const alive = await identify(process.pid);
  const error = await processError(alive, "end the VM process", new Error("kill EPERM"));
  expect(error.message).toBe("Cannot end the VM process: kill EPERM");
});
