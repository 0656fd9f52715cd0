/** What the API promises over a daemon that is killed: a process of its own, over the real store. */
import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { request as httpRequest } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";

const program = join(import.meta.dirname, "../../../../test/contract/api/fake-daemon.ts");
let folder: string;
let socketPath: string;
let daemon: ChildProcess;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "perdure-kill-"));
  socketPath = join(folder, "run.sock");
  await start();
});
afterEach(async () => {
  await kill();
  await rm(folder, { recursive: true });
});

async function start(): Promise<void> {
  daemon = spawn(process.execPath, [program, "--home", folder, "--socket", socketPath], {
    stdio: ["ignore", "inherit", "inherit"],
  });
  await expect.poll(() => send("GET", "/v1/health").catch(() => null)).not.toBeNull();
}

async function kill(): Promise<void> {
  if (daemon.exitCode !== null || daemon.signalCode !== null) return;
  const ended = once(daemon, "exit");
  daemon.kill("SIGKILL");
  await ended;
}

function send(method: string, path: string, key?: string, body?: unknown) {
  return new Promise<{ status: number; replayed: boolean; text: string }>((resolve, reject) => {
    const headers = {
      ...(body === undefined ? {} : { "content-type": "application/json" }),
      ...(key === undefined ? {} : { "idempotency-key": key }),
    };
    const request = httpRequest({ socketPath, method, path, headers }, (response) => {
      let text = "";
      response.setEncoding("utf8");
      response.on("data", (chunk: string) => (text += chunk));
      response.on("error", reject);
      response.on("end", () => {
        const replayed = response.headers["idempotency-replayed"] === "true";
        resolve({ status: response.statusCode ?? 0, replayed, text });
      });
    });
    request.on("error", reject);
    request.end(body === undefined ? undefined : JSON.stringify(body));
  });
}

it("gives the answer of a daemon that was killed right after it, however often", async () => {
  for (let round = 0; round < 3; round++) {
    const body = { name: `a${round}` };
    const first = await send("POST", "/v1/agents", `k${round}`, body);
    await kill();
    await start();
    const again = await send("POST", "/v1/agents", `k${round}`, body);
    expect([first.status, first.replayed]).toEqual([201, false]);
    expect(again).toEqual({ ...first, replayed: true });
  }
});

it("says that it is not known how a request ended that a killed daemon had begun", async () => {
  await send("POST", "/v1/agents", undefined, { name: "a1" });
  const path = "/v1/agents/a1/checkpoint";
  const cut = expect(send("POST", path, "k", { name: "never-ends" })).rejects.toThrow();
  await expect.poll(() => existsSync(join(folder, "begun"))).toBe(true);
  await kill();
  await cut;
  await start();
  const again = await send("POST", path, "k", { name: "never-ends" });
  expect(again.status).toBe(409);
  expect(JSON.parse(again.text)).toMatchObject({ code: "idempotency_unfinished", retry: "check" });
  const other = await send("POST", path, "k", { name: "x" });
  expect(JSON.parse(other.text)).toMatchObject({ code: "idempotency_conflict" });
});
