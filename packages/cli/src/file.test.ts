/** `file` by the built command, against the real API with commands that need no VM. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";
import { afterEach, beforeEach, expect, it } from "vitest";
import { openFakeServer } from "../../../test/contract/api/fake-server.ts";
import type { FakeServer } from "../../../test/contract/api/fake-server.ts";

const bin = join(import.meta.dirname, "..", "bin", "perdure.mjs");
let folder: string;
let fake: FakeServer;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "perdure-file-"));
  fake = await openFakeServer(join(folder, "run", "perdure.sock"), folder);
  await data("create", "a1");
});
afterEach(async () => {
  await fake.close();
  await rm(folder, { recursive: true, force: true });
});

function start(args: readonly string[]) {
  const env = { ...process.env, PERDURE_URL: "", PERDURE_HOME: folder, PERDURE_AUTOSTART: "0" };
  return spawn(process.execPath, [bin, ...args], { env, stdio: ["pipe", "pipe", "pipe"] });
}

async function run(...args: string[]): Promise<{ code: number | null; out: string; err: string }> {
  const child = start(args);
  child.stdin.end("bytes");
  const ended = once(child, "close");
  const [out, err] = await Promise.all([text(child.stdout), text(child.stderr)]);
  const [code] = (await ended) as [number | null];
  return { code, out, err };
}

async function data(...args: string[]): Promise<string> {
  const { code, out, err } = await run(...args);
  expect({ code, err }).toEqual({ code: 0, err: "" });
  return out;
}

it("makes folders, lists them by name, moves and removes what is in them", async () => {
  await data("file", "mkdir", "-p", "a1:/home/user/work/deep", "--mode", "700");
  await data("cp", "-", "a1:/home/user/work/b note");
  await data("cp", "-", "a1:/home/user/work/a");
  const listed = await data("file", "list", "a1:/home/user/work");
  expect(listed).toMatch(
    /^MODE +UID +GID +SIZE +CHANGED +NAME\n-644 .* 5 .* a\n-644 .* "b note"\nd700 .* deep\n$/,
  );
  await data("file", "move", "a1:/home/user/work/a", "a1:/home/user/work/c");
  const entries = JSON.parse(await data("file", "ls", "a1:/home/user/work", "--json")) as object[];
  expect(entries).toMatchObject([
    { name: "b note", kind: "file", size: 5, mode: "644", linkTarget: null },
    { name: "c" },
    { name: "deep", kind: "directory", mode: "700" },
  ]);
  expect(await data("file", "stat", "a1:/home/user/work/c")).toMatch(/^kind +file\nsize +5\n/);
  expect(await run("file", "rm", "a1:/home/user/work")).toMatchObject({
    code: 1,
    err: expect.stringMatching(/path_not_empty.*--recursive/s) as string,
  });
  await data("file", "remove", "a1:/home/user/work", "--recursive");
  expect((await run("file", "stat", "a1:/home/user/work")).code).toBe(1);
});

it.each([
  [["file", "remove", "a1"], "It must be AGENT:/PATH"],
  [["file", "rm", "a1:home"], "It must be AGENT:/PATH"],
  [["file", "move", "a1:/x", "a2:/x"], "both must be in one agent"],
  [["file", "mkdir", "a1:/x", "--mode", "rwx"], "Write it in octal"],
  [["file", "stat", `a1:/${"x".repeat(5000)}`], "at most 4095 bytes"],
  [["file", "mkdir", `a1:/${"x".repeat(5000)}`], "at most 4095 bytes"],
])("refuses %j and says how it is written", async (args, words) => {
  const before = fake.commands.executed.length;
  const { code, out, err } = await run(...args);
  expect(code).not.toBe(0);
  expect(out).toBe("");
  expect(err).toContain(words);
  expect(fake.commands.executed.length).toBe(before);
});

it("prints what changes, a line each", async () => {
  await data("file", "mkdir", "a1:/home/user");
  const watching = start(["file", "watch", "a1:/home/user", "--json"]);
  const lines = createInterface(watching.stdout)[Symbol.asyncIterator]();
  const next = async () => JSON.parse(String((await lines.next()).value)) as object;
  expect(await next()).toEqual({ type: "ready" });
  await data("file", "mkdir", "a1:/home/user/new");
  expect(await next()).toEqual({ type: "created", path: "/home/user/new" });
  watching.kill("SIGINT");
  await once(watching, "close");
});
