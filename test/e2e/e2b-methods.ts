/* eslint-disable @typescript-eslint/no-deprecated -- whoever still calls it is served */
/**
 * Every public method of E2B's SDK, each with one check against a live sandbox: what is claimed works, what is not
 * supported is said in E2B's form. Nothing here knows the test runner; the benchmark counts what passes.
 *
 * `Class.name` is a static method, `Class#name` one of an object.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { text as textOf } from "node:stream/consumers";
import type { Sandbox, SandboxOpts } from "e2b";
import { until } from "./daemon-under-test.ts";

const newest = () => import("e2b");
export type Sdk = Awaited<ReturnType<typeof newest>>;

/** The versions that are held against this table. */
export const sdkVersions: readonly (readonly [version: string, load: () => Promise<Sdk>])[] = [
  ["2.51", newest],
  // The same as far as it is used here; its types are of other declarations.
  ["2.50", () => import("e2b-2.50") as unknown as Promise<Sdk>],
];

export interface Stage {
  readonly sdk: Sdk;
  /** Shared by all checks, and paused and connected to between them. */
  readonly sandbox: Sandbox;
  /** Another sandbox, which the check may do anything to. */
  readonly create: (options?: SandboxOpts) => Promise<Sandbox>;
  /** Unique among checks. */
  readonly name: string;
}

export type Check = (stage: Stage) => Promise<void>;

export interface Outcome {
  readonly method: string;
  readonly error: unknown;
}

/** Pauses of the shared sandbox while its methods are called. */
const CYCLES = 5;

/**
 * Calls every check, the shared sandbox being paused and connected to five times in between. The client is set up by
 * E2B's own variables. @returns in the order of the table; `error` is null where it passed
 */
export async function* runE2bMethods(sdk: Sdk): AsyncGenerator<Outcome> {
  const made: Sandbox[] = [];
  const create = async (options: SandboxOpts = {}): Promise<Sandbox> => {
    const sandbox = await sdk.Sandbox.create({ timeoutMs: 60 * 60_000, ...options });
    made.push(sandbox);
    return sandbox;
  };
  try {
    const sandbox = await create({ envs: { COLOUR: "red" }, metadata: { of: "methods" } });
    const witness = await sandbox.commands.run("sleep 36000", { background: true, timeoutMs: 0 });
    const checks = Object.entries({ ...claimed, ...refused });
    const each = Math.ceil(checks.length / (CYCLES + 1));
    for (const [at, [method, check]] of checks.entries()) {
      if (at > 0 && at % each === 0) {
        assert.equal(await sandbox.pause(), true);
        await sandbox.connect();
      }
      const name = `m${at}`;
      yield {
        method,
        error: await check({ sdk, sandbox, create, name }).then(
          () => null,
          (error: unknown) => error,
        ),
      };
    }
    const pids = (await sandbox.commands.list()).map(({ pid }) => pid);
    assert.ok(pids.includes(witness.pid), "what ran before the pauses runs after them");
  } finally {
    for (const sandbox of made) await sandbox.kill();
  }
}

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const background = { background: true, timeoutMs: 0 } as const;

async function ids(pages: { hasNext: boolean; nextItems: () => Promise<object[]> }) {
  const found: object[] = [];
  while (pages.hasNext) found.push(...(await pages.nextItems()));
  return found.map((item) => Object.values(item).find((value) => typeof value === "string"));
}

/** A clone with one commit, of a bare repository beside it. */
async function repository({ sandbox, name }: Stage, readme = "one"): Promise<string> {
  const { git, files } = sandbox;
  const path = `/home/user/${name}`;
  await git.init(`${path}.git`, { bare: true, initialBranch: "main" });
  await git.clone(`file://${path}.git`, { path });
  await files.write(`${path}/README`, readme);
  await git.add(path);
  await git.commit(path, "first", { authorName: "A", authorEmail: "a@example.org" });
  return path;
}

async function terminal({ sandbox }: Stage) {
  const shown = { text: "" };
  const onData = (data: Uint8Array) => void (shown.text += Buffer.from(data).toString());
  const handle = await sandbox.pty.create({ cols: 80, rows: 24, onData, timeoutMs: 0 });
  handle.wait().catch(() => undefined);
  return { pid: handle.pid, shown, onData };
}

async function aliveIs(sandbox: Sandbox, pid: number): Promise<boolean> {
  return (await sandbox.commands.list()).some((program) => program.pid === pid);
}

/** Each is claimed. */
export const claimed: Readonly<Record<string, Check>> = {
  "Sandbox.create": async ({ create }) => {
    const { sandboxId } = await create({ metadata: { a: "b" } });
    assert.match(sandboxId, /^[0-9a-z]{26}$/);
  },
  "Sandbox.connect": async ({ sdk, sandbox }) => {
    const same = await sdk.Sandbox.connect(sandbox.sandboxId);
    assert.equal((await same.commands.run("echo $COLOUR")).stdout, "red\n");
  },
  "Sandbox#connect": async ({ create }) => {
    const paused = await create();
    await paused.pause();
    await paused.connect();
    assert.equal(await paused.isRunning(), true);
  },
  "Sandbox.list": async ({ sdk, sandbox }) => {
    const query = { metadata: { of: "methods" } };
    assert.ok((await ids(sdk.Sandbox.list({ query }))).includes(sandbox.sandboxId));
    assert.deepEqual(await ids(sdk.Sandbox.list({ query: { metadata: { of: "none" } } })), []);
  },
  "SandboxPaginator#nextItems": async ({ sdk, sandbox }) => {
    const [first] = await sdk.Sandbox.list({
      limit: 1,
      query: { metadata: { of: "methods" } },
    }).nextItems();
    assert.equal(first?.sandboxId, sandbox.sandboxId);
  },
  "Paginator#hasNext": async ({ sdk, create, name }) => {
    await create({ metadata: { name } });
    const pages = sdk.Sandbox.list({ limit: 1, query: { metadata: { name } } });
    assert.equal(pages.hasNext, true);
    await pages.nextItems();
    assert.equal(pages.hasNext, false);
  },
  "Paginator#nextToken": async ({ sdk, create, name }) => {
    for (let i = 0; i < 2; i++) await create({ metadata: { name } });
    const pages = sdk.Sandbox.list({ limit: 1, query: { metadata: { name } } });
    const [first] = await pages.nextItems();
    assert.ok(pages.nextToken);
    const nextToken = pages.nextToken;
    const [second] = await sdk.Sandbox.list({
      nextToken,
      query: { metadata: { name } },
    }).nextItems();
    assert.notEqual(second?.sandboxId, first?.sandboxId);
  },
  "Sandbox.fork": async ({ sdk, sandbox, name }) => {
    await sandbox.files.write(name, "kept");
    const [fork] = await sdk.Sandbox.fork(sandbox.sandboxId, { timeoutMs: 600_000 });
    assert.ok(fork instanceof sdk.Sandbox);
    assert.equal(await fork.files.read(name), "kept");
    await fork.kill();
  },
  "Sandbox#fork": async ({ sdk, sandbox, name }) => {
    const program = await sandbox.commands.run("sleep 600", background);
    const forks = await sandbox.fork({ count: 2, timeoutMs: 600_000 });
    assert.equal(forks.length, 2);
    for (const fork of forks) {
      assert.ok(fork instanceof sdk.Sandbox);
      assert.equal(await aliveIs(fork, program.pid), true);
      await fork.files.write(name, "of the fork");
      await fork.kill();
    }
    assert.equal(await sandbox.files.exists(name), false);
    await program.kill();
  },
  "Sandbox#getHost": async ({ sandbox, name }) => {
    await sandbox.files.write(name, "from inside");
    const server = await sandbox.commands.run("python3 -m http.server 3999", background);
    await until("the page", async () => {
      return (await curl(`http://${sandbox.getHost(3999)}/${name}`)) === "from inside";
    });
    await server.kill();
  },
  "Sandbox#isRunning": async ({ create }) => {
    const other = await create();
    assert.equal(await other.isRunning(), true);
    await other.pause();
    assert.equal(await other.isRunning(), false);
    await other.kill();
    assert.equal(await other.isRunning(), false);
  },
  "Sandbox#setTimeout": async ({ create }) => {
    const other = await create();
    await other.setTimeout(1_000);
    await until("it to be killed", async () => !(await other.isRunning()));
  },
  "Sandbox.setTimeout": async ({ sdk, sandbox }) => {
    await sdk.Sandbox.setTimeout(sandbox.sandboxId, 2 * 60 * 60_000);
    const { endAt } = await sandbox.getInfo();
    assert.ok(endAt.getTime() > Date.now() + 90 * 60_000);
  },
  "Sandbox#updateNetwork": async ({ sandbox }) => {
    await sandbox.updateNetwork({ denyOut: ["10.0.0.0/8"] });
  },
  "Sandbox.updateNetwork": async ({ sdk, sandbox }) => {
    await sdk.Sandbox.updateNetwork(sandbox.sandboxId, { denyOut: ["10.0.0.0/8"] });
  },
  "Sandbox#kill": async ({ create }) => {
    const other = await create();
    assert.equal(await other.kill(), true);
    assert.equal(await other.kill(), false);
  },
  "Sandbox.kill": async ({ sdk, create }) => {
    const { sandboxId } = await create();
    assert.equal(await sdk.Sandbox.kill(sandboxId), true);
    assert.equal(await sdk.Sandbox.kill(sandboxId), false);
  },
  "Sandbox#pause": async ({ create, name }) => {
    const other = await create();
    const writes = `while :; do date +%N > ${name}; sleep 0.1; done`;
    await other.commands.run(writes, background);
    await until("it to begin", () => other.files.exists(name));
    assert.equal(await other.pause(), true);
    assert.equal(await other.pause(), false);
    await other.connect();
    const before = await other.files.read(name);
    await until("it to go on", async () => (await other.files.read(name)) !== before);
  },
  "Sandbox.pause": async ({ sdk, create }) => {
    const other = await create();
    assert.equal(await sdk.Sandbox.pause(other.sandboxId), true);
    assert.equal((await other.getInfo()).state, "paused");
  },
  "Sandbox#betaPause": async ({ create }) => {
    const other = await create();
    assert.equal(await other.betaPause(), true);
    assert.equal((await other.getInfo()).state, "paused");
  },
  "Sandbox.betaPause": async ({ sdk, create }) => {
    const other = await create();
    assert.equal(await sdk.Sandbox.betaPause(other.sandboxId), true);
    assert.equal(await other.isRunning(), false);
  },
  "Sandbox#createSnapshot": async ({ sdk, sandbox, name }) => {
    await sandbox.files.write(name, "then");
    const { snapshotId, names } = await sandbox.createSnapshot({ name });
    assert.deepEqual(names, [name]);
    await sandbox.files.write(name, "later");
    const back = await sdk.Sandbox.create(snapshotId, { timeoutMs: 600_000 });
    assert.equal(await back.files.read(name), "then");
    await back.kill();
  },
  "Sandbox.createSnapshot": async ({ sdk, sandbox }) => {
    const { snapshotId } = await sdk.Sandbox.createSnapshot(sandbox.sandboxId);
    assert.ok((await ids(sandbox.listSnapshots())).includes(snapshotId));
  },
  "Sandbox#listSnapshots": async ({ sandbox }) => {
    const { snapshotId } = await sandbox.createSnapshot();
    assert.ok((await ids(sandbox.listSnapshots({ limit: 1 }))).includes(snapshotId));
  },
  "Sandbox.listSnapshots": async ({ sdk, create }) => {
    const other = await create();
    const { snapshotId } = await other.createSnapshot();
    const { sandboxId } = other;
    assert.deepEqual(await ids(sdk.Sandbox.listSnapshots({ sandboxId })), [snapshotId]);
  },
  "SnapshotPaginator#nextItems": async ({ sdk, create, name }) => {
    const { sandboxId } = await (async (other) => {
      await other.createSnapshot({ name });
      return other;
    })(await create());
    const [first] = await sdk.Sandbox.listSnapshots({ sandboxId, limit: 1 }).nextItems();
    assert.deepEqual(first?.names, [name]);
  },
  "Sandbox.deleteSnapshot": async ({ sdk, sandbox }) => {
    const { snapshotId } = await sandbox.createSnapshot();
    assert.equal(await sdk.Sandbox.deleteSnapshot(snapshotId), true);
    assert.equal(await sdk.Sandbox.deleteSnapshot(snapshotId), false);
  },
  "Sandbox#uploadUrl": async ({ sandbox, name }) => {
    const form = new FormData();
    form.append("file", new Blob(["given"]));
    const url = await sandbox.uploadUrl(name, { useSignatureExpiration: 600 });
    assert.equal((await fetch(url, { method: "POST", body: form })).status, 200);
    assert.equal(await sandbox.files.read(name), "given");
    const past = await sandbox.uploadUrl(name, { useSignatureExpiration: -10 });
    assert.equal((await fetch(past, { method: "POST", body: form })).status, 401);
  },
  "Sandbox#downloadUrl": async ({ sandbox, name }) => {
    await sandbox.files.write(name, "shared");
    const url = await sandbox.downloadUrl(name, { useSignatureExpiration: 600 });
    assert.equal(await (await fetch(url)).text(), "shared");
    const other = await fetch(url.replace(name, "else"));
    assert.equal(other.status, 401);
    const past = await sandbox.downloadUrl(name, { useSignatureExpiration: -10 });
    assert.equal((await fetch(past)).status, 401);
  },
  "Sandbox#getInfo": async ({ sandbox }) => {
    const { sandboxId, state, metadata } = await sandbox.getInfo();
    const shown = { sandboxId, state, metadata };
    const wanted = { sandboxId: sandbox.sandboxId, state: "running", metadata: { of: "methods" } };
    assert.deepEqual(shown, wanted);
  },
  "Sandbox.getInfo": async ({ sdk, sandbox }) => {
    const { cpuCount, memoryMB } = await sdk.Sandbox.getInfo(sandbox.sandboxId);
    assert.deepEqual([cpuCount, memoryMB], [1, 512]);
  },
  "Sandbox.getFullInfo": async ({ sdk, sandbox }) => {
    const info = await sdk.Sandbox.getFullInfo(sandbox.sandboxId);
    assert.equal(info.sandboxId, sandbox.sandboxId);
  },
  "Sandbox#getMetrics": async ({ sandbox }) => {
    const [metric] = await sandbox.getMetrics();
    assert.ok((metric?.memTotal ?? 0) > 400 * 1024 * 1024);
    assert.ok((metric?.memUsed ?? 0) < (metric?.memTotal ?? 0));
  },
  "Sandbox.getMetrics": async ({ sdk, sandbox }) => {
    const [metric] = await sdk.Sandbox.getMetrics(sandbox.sandboxId);
    assert.equal(metric?.cpuCount, 1);
  },

  "Commands#run": async ({ sandbox }) => {
    const { commands } = sandbox;
    const options = { cwd: "/tmp", envs: { A: "b" }, user: "root" };
    const ran = await commands.run("echo $A $COLOUR; pwd; id -un; echo bad >&2", options);
    const { exitCode, stdout, stderr } = ran;
    assert.deepEqual([exitCode, stdout, stderr], [0, "b red\n/tmp\nroot\n", "bad\n"]);
    await assert.rejects(commands.run("exit 3"), { exitCode: 3 });
  },
  "Commands#list": async ({ sandbox }) => {
    const { pid, kill } = await begin(sandbox, "sleep 600");
    assert.equal(await aliveIs(sandbox, pid), true);
    await kill();
    assert.equal(await aliveIs(sandbox, pid), false);
  },
  "Commands#sendStdin": async ({ sandbox }) => {
    const cat = await sandbox.commands.run("head -n 1", { ...background, stdin: true });
    await sandbox.commands.sendStdin(cat.pid, "line\n");
    assert.equal((await cat.wait()).stdout, "line\n");
  },
  "Commands#supportsStdinClose": ({ sandbox }) => {
    assert.equal(sandbox.commands.supportsStdinClose, true);
    return Promise.resolve();
  },
  "Commands#closeStdin": async ({ sandbox }) => {
    const cat = await sandbox.commands.run("cat; echo end", { ...background, stdin: true });
    await sandbox.commands.closeStdin(cat.pid);
    assert.equal((await cat.wait()).stdout, "end\n");
  },
  "Commands#kill": async ({ sandbox }) => {
    const { pid } = await begin(sandbox, "sleep 600");
    assert.equal(await sandbox.commands.kill(pid), true);
    assert.equal(await sandbox.commands.kill(pid), false);
  },
  "Commands#connect": async ({ create, name }) => {
    const other = await create();
    const { pid } = await begin(other, `until test -e ${name}; do sleep 0.1; done; echo after`);
    await other.pause();
    await other.connect();
    const again = await other.commands.connect(pid, { timeoutMs: 0 });
    await other.files.write(name, "");
    assert.equal((await again.wait()).stdout, "after\n");
  },
  "CommandHandle#wait": async ({ sandbox }) => {
    const handle = await sandbox.commands.run("sleep 0.2; echo done", background);
    assert.equal((await handle.wait()).stdout, "done\n");
  },
  "CommandHandle#exitCode": async ({ sandbox }) => {
    const handle = await sandbox.commands.run("exit 4", background);
    await handle.wait().catch(() => undefined);
    assert.equal(handle.exitCode, 4);
  },
  "CommandHandle#error": async ({ sandbox }) => {
    const handle = await sandbox.commands.run("exit 4", background);
    await handle.wait().catch(() => undefined);
    assert.equal(handle.error, "exit status 4");
  },
  "CommandHandle#stdout": async ({ sandbox }) => {
    const handle = await sandbox.commands.run("echo out", background);
    await handle.wait();
    assert.equal(handle.stdout, "out\n");
  },
  "CommandHandle#stderr": async ({ sandbox }) => {
    const handle = await sandbox.commands.run("echo bad >&2", background);
    await handle.wait();
    assert.equal(handle.stderr, "bad\n");
  },
  "CommandHandle#disconnect": async ({ sandbox }) => {
    const handle = await sandbox.commands.run("sleep 600", background);
    await handle.disconnect();
    assert.equal(await aliveIs(sandbox, handle.pid), true);
    await handle.kill();
  },
  "CommandHandle#kill": async ({ sandbox }) => {
    const handle = await sandbox.commands.run("sleep 600", background);
    const ended = assert.rejects(handle.wait(), { exitCode: -1, error: "signal: killed" });
    assert.equal(await handle.kill(), true);
    await ended;
  },
  "CommandHandle#sendStdin": async ({ sandbox }) => {
    const handle = await sandbox.commands.run("head -n 1", { ...background, stdin: true });
    await handle.sendStdin(bytes("line\n"));
    assert.equal((await handle.wait()).stdout, "line\n");
  },
  "CommandHandle#closeStdin": async ({ sandbox }) => {
    const handle = await sandbox.commands.run("cat", { ...background, stdin: true });
    await handle.sendStdin("all");
    await handle.closeStdin();
    assert.equal((await handle.wait()).stdout, "all");
  },

  "Filesystem#read": async ({ sandbox: { files }, name }) => {
    await files.write(name, "text");
    assert.equal(await files.read(name), "text");
    assert.deepEqual(await files.read(name, { format: "bytes" }), bytes("text"));
    assert.equal(await (await files.read(name, { format: "blob" })).text(), "text");
    const chunks = await Array.fromAsync(await files.read(name, { format: "stream" }));
    assert.equal(Buffer.concat(chunks).toString(), "text");
    await assert.rejects(files.read("none"), { name: "FileNotFoundError" });
  },
  "Filesystem#write": async ({ sandbox: { files, commands }, name }) => {
    const written = await files.write(`${name}/deep/file`, new Blob(["blob"]).stream());
    assert.equal(written.path, `/home/user/${name}/deep/file`);
    const { stdout } = await commands.run(`cat ${name}/deep/file; stat -c %U ${name}/deep/file`);
    assert.equal(stdout, "blobuser\n");
  },
  "Filesystem#writeFiles": async ({ sandbox: { files }, name }) => {
    await files.writeFiles([
      { path: `${name}-1`, data: "1" },
      { path: `${name}-2`, data: new Blob(["2"]) },
    ]);
    assert.equal((await files.read(`${name}-1`)) + (await files.read(`${name}-2`)), "12");
  },
  "Filesystem#list": async ({ sandbox: { files }, name }) => {
    await files.write(`${name}/a/b`, "");
    const listed = await files.list(name, { depth: 2 });
    assert.deepEqual(
      listed.map((entry) => [entry.name, entry.type]),
      [
        ["a", "dir"],
        ["b", "file"],
      ],
    );
  },
  "Filesystem#makeDir": async ({ sandbox: { files }, name }) => {
    assert.equal(await files.makeDir(`${name}/deep`), true);
    assert.equal(await files.makeDir(`${name}/deep`), false);
  },
  "Filesystem#rename": async ({ sandbox: { files }, name }) => {
    await files.write(name, "moved");
    const moved = await files.rename(name, `${name}-to`);
    assert.equal(moved.path, `/home/user/${name}-to`);
    assert.equal(await files.read(`${name}-to`), "moved");
    assert.equal(await files.exists(name), false);
  },
  "Filesystem#remove": async ({ sandbox: { files }, name }) => {
    await files.write(`${name}/in/it`, "");
    await files.remove(name);
    assert.equal(await files.exists(name), false);
  },
  "Filesystem#exists": async ({ sandbox: { files } }) => {
    assert.deepEqual(
      [await files.exists("/etc/passwd"), await files.exists("none")],
      [true, false],
    );
  },
  "Filesystem#getInfo": async ({ sandbox: { files }, name }) => {
    const metadata = { author: "me" };
    await files.write(name, "1", { metadata });
    assert.deepEqual((await files.getInfo(name)).metadata, metadata);
    const listed = await files.list("/home/user");
    assert.deepEqual(listed.find((entry) => entry.name === name)?.metadata, metadata);
    await files.write(name, "12345");
    const { size, permissions, owner, type } = await files.getInfo(name);
    assert.deepEqual([size, permissions, owner, type], [5, "-rw-r--r--", "user", "file"]);
  },
  "Filesystem#watchDir": async ({ sandbox, create, name }) => {
    const seen: string[] = [];
    const note = (event: { type: string; name: string }) =>
      void seen.push(`${event.type} ${event.name}`);
    await sandbox.files.makeDir(`${name}/sub`);
    const handle = await sandbox.files.watchDir(name, note, { recursive: true, timeoutMs: 0 });
    await sandbox.files.write(`${name}/sub/new`, "1");
    await until("the new file to be told", () => seen.includes("create sub/new"));
    await handle.stop();
    // What it may miss is said: the watch ends with the pause, and a new one tells on.
    const other = await create();
    await other.files.makeDir(name);
    const ended = Promise.withResolvers<Error | undefined>();
    const onExit = (error?: Error) => ended.resolve(error);
    await other.files.watchDir(name, note, { timeoutMs: 0, onExit });
    await other.pause();
    assert.ok((await ended.promise) instanceof Error);
    await other.connect();
    const again = await other.files.watchDir(name, note, { timeoutMs: 0 });
    await other.files.write(`${name}/later`, "1");
    await until("what is new after the pause to be told", () => seen.includes("create later"));
    await again.stop();
  },
  "WatchHandle#stop": async ({ sandbox: { files }, name }) => {
    let told = 0;
    await files.makeDir(name);
    const ended = Promise.withResolvers<Error | undefined>();
    const onExit = (error?: Error) => ended.resolve(error);
    const handle = await files.watchDir(
      name,
      () => {
        told++;
      },
      { timeoutMs: 0, onExit },
    );
    await handle.stop();
    await ended.promise;
    const before = told;
    await files.write(`${name}/new`, "");
    assert.equal(told, before);
  },

  "Pty#create": async (stage) => {
    const { pid, shown } = await terminal(stage);
    await stage.sandbox.pty.sendInput(pid, bytes("tty; stty size\n"));
    await until("the terminal", () => /\/dev\/pts\/\d+[^]*24 80/.test(shown.text));
    await stage.sandbox.pty.kill(pid);
  },
  "Pty#connect": async (stage) => {
    const { create } = stage;
    const sandbox = await create();
    const { pid, shown, onData } = await terminal({ ...stage, sandbox });
    await sandbox.pty.sendInput(pid, bytes("kept=value; echo s$((1+1))t\n"));
    await until("the variable to be set", () => shown.text.includes("s2t"));
    await sandbox.pause();
    await sandbox.connect();
    shown.text = "";
    await sandbox.pty.connect(pid, { onData, timeoutMs: 0 });
    await sandbox.pty.sendInput(pid, bytes("echo still-$kept\n"));
    await until("the shell to go on", () => shown.text.includes("still-value"));
  },
  "Pty#sendInput": async (stage) => {
    const { pid, shown } = await terminal(stage);
    await stage.sandbox.pty.sendInput(pid, bytes("echo $((6*7))\n"));
    await until("the answer", () => shown.text.includes("42"));
    await stage.sandbox.pty.sendInput(pid, bytes("exit\n"));
    await until("it to end", async () => !(await aliveIs(stage.sandbox, pid)));
  },
  "Pty#resize": async (stage) => {
    const { pid, shown } = await terminal(stage);
    await stage.sandbox.pty.resize(pid, { cols: 101, rows: 41 });
    await stage.sandbox.pty.sendInput(pid, bytes("stty size\n"));
    await until("the new size", () => shown.text.includes("41 101"));
    await stage.sandbox.pty.kill(pid);
  },
  "Pty#kill": async (stage) => {
    const { pid } = await terminal(stage);
    assert.equal(await stage.sandbox.pty.kill(pid), true);
    assert.equal(await stage.sandbox.pty.kill(pid), false);
  },

  "Git#clone": async (stage) => {
    const path = await repository(stage);
    assert.equal(await stage.sandbox.files.exists(`${path}/.git`), true);
  },
  "Git#init": async ({ sandbox, name }) => {
    await sandbox.git.init(`/home/user/${name}`, { initialBranch: "trunk" });
    assert.equal((await sandbox.git.status(`/home/user/${name}`)).currentBranch, "trunk");
  },
  "Git#remoteAdd": async (stage) => {
    const path = await repository(stage);
    await stage.sandbox.git.remoteAdd(path, "other", "file:///nowhere");
    const { stdout } = await stage.sandbox.commands.run(`git -C ${path} remote`);
    assert.equal(stdout, "origin\nother\n");
  },
  "Git#remoteGet": async (stage) => {
    const path = await repository(stage);
    assert.equal(await stage.sandbox.git.remoteGet(path, "origin"), `file://${path}.git`);
  },
  "Git#status": async (stage) => {
    const path = await repository(stage);
    assert.equal((await stage.sandbox.git.status(path)).isClean, true);
    await stage.sandbox.files.write(`${path}/new`, "");
    assert.equal((await stage.sandbox.git.status(path)).untrackedCount, 1);
  },
  "Git#branches": async (stage) => {
    const path = await repository(stage);
    assert.deepEqual((await stage.sandbox.git.branches(path)).branches, ["main"]);
  },
  "Git#createBranch": async (stage) => {
    const path = await repository(stage);
    await stage.sandbox.git.createBranch(path, "new");
    assert.equal((await stage.sandbox.git.branches(path)).currentBranch, "new");
  },
  "Git#checkoutBranch": async (stage) => {
    const path = await repository(stage);
    await stage.sandbox.git.createBranch(path, "new");
    await stage.sandbox.git.checkoutBranch(path, "main");
    assert.equal((await stage.sandbox.git.branches(path)).currentBranch, "main");
  },
  "Git#deleteBranch": async (stage) => {
    const path = await repository(stage);
    await stage.sandbox.git.createBranch(path, "new");
    await stage.sandbox.git.checkoutBranch(path, "main");
    await stage.sandbox.git.deleteBranch(path, "new");
    assert.deepEqual((await stage.sandbox.git.branches(path)).branches, ["main"]);
  },
  "Git#add": async (stage) => {
    const path = await repository(stage);
    await stage.sandbox.files.write(`${path}/new`, "");
    await stage.sandbox.git.add(path, { files: ["new"] });
    assert.equal((await stage.sandbox.git.status(path)).stagedCount, 1);
  },
  "Git#commit": async (stage) => {
    const path = await repository(stage);
    const { stdout } = await stage.sandbox.commands.run(`git -C ${path} log --format=%s,%an`);
    assert.equal(stdout, "first,A\n");
  },
  "Git#reset": async (stage) => {
    const path = await repository(stage);
    await stage.sandbox.files.write(`${path}/README`, "changed");
    await stage.sandbox.git.reset(path, { mode: "hard" });
    assert.equal(await stage.sandbox.files.read(`${path}/README`), "one");
  },
  "Git#restore": async (stage) => {
    const path = await repository(stage);
    await stage.sandbox.files.write(`${path}/README`, "changed");
    await stage.sandbox.git.restore(path, { paths: ["README"] });
    assert.equal(await stage.sandbox.files.read(`${path}/README`), "one");
  },
  "Git#push": async (stage) => {
    const path = await repository(stage);
    await stage.sandbox.git.push(path, { remote: "origin", branch: "main" });
    const { stdout } = await stage.sandbox.commands.run(`git -C ${path}.git log --format=%s main`);
    assert.equal(stdout, "first\n");
  },
  "Git#pull": async (stage) => {
    const { git, files } = stage.sandbox;
    const path = await repository(stage);
    await git.push(path, { remote: "origin", branch: "main" });
    await git.clone(`file://${path}.git`, { path: `${path}-2` });
    await files.write(`${path}/README`, "two");
    await git.add(path);
    await git.commit(path, "second", { authorName: "A", authorEmail: "a@example.org" });
    await git.push(path, { remote: "origin", branch: "main" });
    await git.pull(`${path}-2`);
    assert.equal(await files.read(`${path}-2/README`), "two");
  },
  "Git#setConfig": async (stage) => {
    const path = await repository(stage);
    await stage.sandbox.git.setConfig("core.abbrev", "12", { scope: "local", path });
    const { stdout } = await stage.sandbox.commands.run(`git -C ${path} config core.abbrev`);
    assert.equal(stdout, "12\n");
  },
  "Git#getConfig": async ({ sandbox }) => {
    await sandbox.git.setConfig("demo.key", "value");
    assert.equal(await sandbox.git.getConfig("demo.key"), "value");
    assert.equal(await sandbox.git.getConfig("demo.none"), undefined);
  },
  "Git#dangerouslyAuthenticate": async ({ sandbox }) => {
    const username = "somebody";
    const host = "git.example";
    await sandbox.git.dangerouslyAuthenticate({ username, password: "secret", host });
    const fill = `printf 'protocol=https\\nhost=${host}\\n\\n' | git credential fill`;
    assert.match((await sandbox.commands.run(fill)).stdout, /password=secret/);
  },
  "Git#configureUser": async ({ sandbox }) => {
    await sandbox.git.configureUser("Some Body", "some@example.org");
    assert.equal(await sandbox.git.getConfig("user.email"), "some@example.org");
  },

  "Template.exists": async ({ sdk }) => {
    assert.equal(await sdk.Template.exists("base"), true);
    assert.equal(await sdk.Template.exists("no-such-image"), false);
  },
  "Template.aliasExists": async ({ sdk }) => {
    assert.equal(await sdk.Template.aliasExists("debian"), true);
    assert.equal(await sdk.Template.aliasExists("no-such-image"), false);
  },
};

/** What the API says to it is said by the SDK. */
const isRefused =
  (call: (stage: Stage) => Promise<unknown>): Check =>
  async (stage) => {
    await assert.rejects(call(stage), (error: Error) => {
      assert.match(error.message, /not supported/i);
      return true;
    });
  };

/** Each is not supported, and says so. docs/reference/e2b.md lists them. */
export const refused: Readonly<Record<string, Check>> = {
  "Sandbox#getMcpToken": async ({ sdk, sandbox }) => {
    await assert.rejects(sandbox.getMcpToken(), { name: "FileNotFoundError" });
    await isRefused(() => sdk.Sandbox.create({ mcp: {} as never }))({ sdk } as Stage);
  },
  "Template.build": isRefused(({ sdk }) =>
    sdk.Template.build(sdk.Template().fromBaseImage(), "mine"),
  ),
  "Template.buildInBackground": isRefused(({ sdk }) =>
    sdk.Template.buildInBackground(sdk.Template().fromBaseImage(), "mine"),
  ),
  "Template.getBuildStatus": isRefused(({ sdk }) =>
    sdk.Template.getBuildStatus({ templateId: "mine", buildId: "one" }),
  ),
  "Template.assignTags": isRefused(({ sdk }) => sdk.Template.assignTags("mine", "tag")),
  "Template.removeTags": isRefused(({ sdk }) => sdk.Template.removeTags("mine", "tag")),
  "Template.getTags": isRefused(({ sdk }) => sdk.Template.getTags("mine")),
  "Volume.create": isRefused(({ sdk }) => sdk.Volume.create("mine")),
  "Volume.connect": isRefused(({ sdk }) => sdk.Volume.connect("mine")),
  "Volume.getInfo": isRefused(({ sdk }) => sdk.Volume.getInfo("mine")),
  "Volume.list": isRefused(({ sdk }) => sdk.Volume.list()),
  "Volume.destroy": isRefused(({ sdk }) => sdk.Volume.destroy("mine")),
  "Secret.create": isRefused(({ sdk }) => sdk.Secret.create("mine", "value")),
  "Secret.update": isRefused(({ sdk }) => sdk.Secret.update("mine", "value")),
  "Secret.getInfo": isRefused(({ sdk }) => sdk.Secret.getInfo("mine")),
  "Secret.list": isRefused(({ sdk }) => sdk.Secret.list().nextItems()),
  "SecretPaginator#nextItems": isRefused(({ sdk }) => sdk.Secret.list({ limit: 1 }).nextItems()),
  "Secret.exists": isRefused(({ sdk }) => sdk.Secret.exists("mine")),
  "Secret.destroy": isRefused(({ sdk }) => sdk.Secret.destroy("mine")),
};

/** Each says something by itself: no daemon hears of it, or it is of what is refused above. */
export const asksNothing: readonly RegExp[] = [
  /^TemplateBase#/,
  /^Template\.(toJSON|toDockerfile)$/,
  /^Secret\.(fill|iamToken)$/,
  /^Sandbox#getMcpUrl$/,
  /^Volume#/,
];

async function begin(sandbox: Sandbox, command: string) {
  const handle = await sandbox.commands.run(command, background);
  await handle.disconnect();
  return { pid: handle.pid, kill: () => sandbox.commands.kill(handle.pid) };
}

/** Names below localhost are known to it. */
async function curl(url: string): Promise<string> {
  const child = spawn("curl", ["-sf", "-m", "120", url], { stdio: ["ignore", "pipe", "ignore"] });
  const [body] = await Promise.all([textOf(child.stdout), once(child, "close")]);
  return body;
}
