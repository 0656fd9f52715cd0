/** `forward` and `port`, by the built command, against the real API. */
import { spawn } from "node:child_process";
import type { ChildProcess, ChildProcessByStdio } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { connect, createServer } from "node:net";
import type { AddressInfo, Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { Perdure } from "@perdure/sdk";
import { openFakeServer } from "../../../test/contract/api/fake-server.ts";
import type { FakeServer } from "../../../test/contract/api/fake-server.ts";

const bin = join(import.meta.dirname, "..", "bin", "perdure.mjs");
let folder: string;
let fake: FakeServer;
let server: Server;
let inside: number;
let children: ChildProcess[];

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "perdure-forward-"));
  children = [];
  fake = await openFakeServer(join(folder, "run", "perdure.sock"), folder);
  await using perdure = new Perdure({ socketPath: fake.socketPath });
  await perdure.create({ name: "a1" });
  server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on("error", () => undefined);
    socket.pipe(socket);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  inside = (server.address() as AddressInfo).port;
});
afterEach(async () => {
  for (const child of children) child.kill("SIGKILL");
  server.close();
  await fake.close();
  await rm(folder, { recursive: true, force: true });
});

function start(...args: string[]): ChildProcessByStdio<null, Readable, Readable> {
  const env = { ...process.env, PERDURE_HOME: folder, PERDURE_SOCKET: "", PERDURE_AUTOSTART: "0" };
  const child = spawn(process.execPath, [bin, ...args], { env, stdio: ["ignore", "pipe", "pipe"] });
  children.push(child);
  return child;
}

async function run(...args: string[]): Promise<{ code: number; stdout: string; stderr: string }> {
  const child = start(...args);
  const [stdout, stderr, [code]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, "close") as Promise<[number]>,
  ]);
  return { code, stdout, stderr };
}

async function linesOf(child: { stdout: NodeJS.ReadableStream }, count: number): Promise<string[]> {
  const lines: string[] = [];
  for await (const line of createInterface({ input: child.stdout })) {
    if (lines.push(line) === count) break;
  }
  return lines;
}

async function said(port: number, what: string): Promise<string> {
  const socket = connect({ port, host: "127.0.0.1", allowHalfOpen: true });
  socket.end(what);
  return text(socket);
}

describe("forward", () => {
  it("says where it listens, passes connections, and ends with Ctrl-C", async () => {
    const child = start("forward", "a1", `0:${inside}`, `0:${inside}`, "--json");
    const lines = await linesOf(child, 2);
    const ports = lines.map((line) => (JSON.parse(line) as { localPort: number }).localPort);
    expect(JSON.parse(lines[0] ?? "")).toMatchObject({ agent: "a1", port: inside });
    const long = "x".repeat(3_000_000);
    for (const port of ports) expect(await said(port, long)).toBe(long);
    child.kill("SIGINT");
    expect(await once(child, "exit")).toEqual([130, null]);
  });

  it("resets what cannot be passed on, says so, and goes on", async () => {
    const child = start("forward", "a1", `0:${inside}`);
    const [line = ""] = await linesOf(child, 1);
    const [, port] = /^127\.0\.0\.1:(\d+) is port \d+ of agent "a1"$/.exec(line) ?? [];
    server.close();
    const why = once(child.stderr, "data");
    await expect(said(Number(port), "x")).rejects.toMatchObject({ code: "ECONNRESET" });
    expect(String((await why)[0])).toMatch(/^perdure: port \d+: Cannot connect to port/);
    server.listen(inside, "127.0.0.1");
    await once(server, "listening");
    expect(await said(Number(port), "again")).toBe("again");
  });

  it("refuses what is no port, one that is taken, and no such agent", async () => {
    for (const wrong of ["0", "x", "70000", "1:2:3", ":80", "80:", "-1:80"]) {
      expect((await run("forward", "a1", "--", wrong)).code).toBe(2);
    }
    const taken = await run("forward", "a1", String(inside), "--json");
    expect(taken.code).toBe(2);
    expect(JSON.parse(taken.stderr)).toMatchObject({ code: "bad_request" });
    expect((await run("forward", "a2", `0:${inside}`)).code).toBe(1);
  });
});

describe("port", () => {
  it("shows who may visit, and changes it", async () => {
    const first = await run("port", "a1", "8000", "--json");
    const view = JSON.parse(first.stdout) as { token: string };
    expect(view).toMatchObject({ port: 8000, public: false, url: null });
    expect((await run("port", "a1", "8000", "--public")).stdout).toContain("everybody");
    const again = await run("port", "a1", "8000", "--private", "--renew-token", "--json");
    expect(JSON.parse(again.stdout)).toMatchObject({ public: false });
    expect(again.stdout).not.toContain(view.token);
    expect((await run("port", "a1", "8000", "--public", "--private")).code).toBe(2);
  });
});
