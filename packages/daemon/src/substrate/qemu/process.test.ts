import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { describe, expect, test } from "vitest";
import { PAGE_BYTES } from "@perdure/protocol";
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

test("writing the memory of a process that is killed meanwhile ends in an error", async () => {
  const workers = new MemoryWorkers(new PageBuffers());
  const pages = 1024;
  const program = `const held = Buffer.alloc(${pages * 2 * PAGE_BYTES}, 1); process.stdout.write("up"); setInterval(() => held, 1e9)`;
  try {
    for (let round = 0; round < 8; round++) {
      const child = spawn(process.execPath, ["-e", program], {
        stdio: ["ignore", "pipe", "ignore"],
      });
      await once(child.stdout, "data");
      const identity = await identify(child.pid ?? 0);
      const task = { process: identity, areas: [await largestArea(identity.pid)] };
      const writeOn = async (): Promise<never> => {
        for (;;) {
          // No two pages are neighbours, so that each is a write of its own.
          const indexes = Uint32Array.from({ length: pages }, (_, i) => i * 2);
          await workers.write(task, { indexes, bytes: new Uint8Array(pages * PAGE_BYTES).fill(1) });
          underWay.resolve(undefined);
        }
      };
      const underWay = Promise.withResolvers<undefined>();
      const refused = expect(writeOn()).rejects.toMatchObject({
        code: "machine_failed",
        message: expect.stringContaining("Cannot write the memory of the VM process: ") as string,
      });
      await underWay.promise;
      child.kill("SIGKILL");
      await refused;
    }
  } finally {
    await workers.close();
  }
});

/** The largest private area that the process may write. */
async function largestArea(pid: number) {
  const lines = (await readFile(`/proc/${pid}/maps`, "latin1")).split("\n");
  const areas = lines
    .filter((line) => / rw-p 00000000 00:00 0 *$/.test(line))
    .map((line) => {
      const [from = 0, to = 0] = (line.split(" ")[0] ?? "")
        .split("-")
        .map((address) => Number.parseInt(address, 16));
      return { address: from, offset: 0, bytes: to - from };
    })
    .sort((a, b) => b.bytes - a.bytes);
  if (areas[0] === undefined) throw new Error(`Process ${pid} has no memory of its own`);
  return areas[0];
}

test("of a process that lives, what the system refused is said", async () => {
  const alive = await identify(process.pid);
  const error = await processError(alive, "end the VM process", new Error("kill EPERM"));
  expect(error.message).toBe("Cannot end the VM process: kill EPERM");
});
