/**
 * Clients that nobody here wrote: the npm package of E2B in two versions, unchanged, against a daemon with real VMs.
 * Everything goes to the daemon's one TCP address; what is claimed in docs/reference/e2b.md is used here.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { text as textOf } from "node:stream/consumers";
import { gzipSync } from "node:zlib";
import { createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import type { Sandbox, SandboxOpts } from "e2b";
import { Filesystem } from "../../packages/daemon/src/api/e2b/schema/filesystem.mjs";
import { Process } from "../../packages/daemon/src/api/e2b/schema/process.mjs";
import { DaemonUnderTest, until } from "./daemon-under-test.ts";
import { sdkVersions as versions } from "./e2b-methods.ts";
import type { Sdk } from "./e2b-methods.ts";
import { freePort } from "./free-port.ts";

const daemon = new DaemonUnderTest();
let listen: string;

/** Names below localhost are known to it. */
async function curl(url: string, headers: Readonly<Record<string, string>> = {}) {
  const sent = Object.entries(headers).flatMap(([name, value]) => ["-H", `${name}: ${value}`]);
  const child = spawn("curl", ["-s", "-m", "120", "-w", "\n%{http_code}", ...sent, url]);
  const [out] = await Promise.all([textOf(child.stdout), once(child, "close")]);
  const at = out.lastIndexOf("\n");
  return { status: Number(out.slice(at + 1)), body: out.slice(0, at) };
}

beforeAll(async () => {
  listen = `127.0.0.1:${await freePort()}`;
  await daemon.start({ PERDURE_LISTEN: listen });
  const { e2bKey } = await daemon.client.keys.create({ name: "e2b", scope: "admin" });
  process.env["E2B_API_KEY"] = e2bKey;
  process.env["E2B_API_URL"] = `http://${listen}`;
  process.env["E2B_SANDBOX_URL"] = `http://${listen}`;
});
afterAll(async () => {
  expect(await daemon.end()).toEqual([]);
});

describe.each(versions)("SDK %s", (_version, load) => {
  let sdk: Sdk;
  const made: Sandbox[] = [];

  beforeAll(async () => {
    sdk = await load();
  });
  afterEach(async () => {
    for (const sandbox of made.splice(0)) await sandbox.kill();
  });

  async function create(options: SandboxOpts = {}): Promise<Sandbox> {
    const sandbox = await sdk.Sandbox.create({ timeoutMs: 30 * 60_000, ...options });
    made.push(sandbox);
    return sandbox;
  }

  test("a sandbox runs commands, keeps files and processes over five pauses, and is gone once killed", async () => {
    const sandbox = await create({ envs: { COLOUR: "red" }, metadata: { purpose: "life" } });
    expect(await sandbox.isRunning()).toBe(true);
    const first = await sandbox.commands.run("echo $COLOUR; echo bad >&2; id -un; pwd");
    expect(first).toMatchObject({
      exitCode: 0,
      stdout: "red\nuser\n/home/user\n",
      stderr: "bad\n",
    });
    const counter = await sandbox.commands.run(
      "i=0; while true; do i=$((i+1)); echo $i > count; sleep 0.2; done",
      { background: true, timeoutMs: 0 },
    );
    await sandbox.files.write("marked", "x", { metadata: { author: "me" } });
    let before = 0;
    for (let cycle = 1; cycle <= 5; cycle++) {
      await sandbox.files.write(`note-${cycle}`, `cycle ${cycle}`);
      expect(await sandbox.pause()).toBe(true);
      expect(await sandbox.isRunning()).toBe(false);
      expect(await sandbox.pause()).toBe(false);
      await sandbox.connect();
      expect(await sandbox.isRunning()).toBe(true);
      expect((await sandbox.commands.run("cat note-*")).stdout).toBe(
        Array.from({ length: cycle }, (_, i) => `cycle ${i + 1}`).join(""),
      );
      expect((await sandbox.commands.run("echo $COLOUR")).stdout).toBe("red\n");
      const pids = (await sandbox.commands.list()).map(({ pid }) => pid);
      expect(pids).toEqual([counter.pid]);
      const last = before;
      await until("the program inside to go on", async () => {
        before = Number(await sandbox.files.read("count"));
        return before > last;
      });
    }
    const { metadata } = await sandbox.files.rename("marked", "moved");
    expect(metadata).toEqual({ author: "me" });
    const attribute = "import os; print(os.getxattr('moved', 'user.e2b.author'))";
    expect((await sandbox.commands.run(`python3 -c "${attribute}"`)).stdout).toBe("b'me'\n");
    expect(await sandbox.commands.kill(counter.pid)).toBe(true);
    expect(await sandbox.commands.kill(counter.pid)).toBe(false);
    expect(await sandbox.kill()).toBe(true);
    expect(await sandbox.isRunning()).toBe(false);
    expect(await sandbox.kill()).toBe(false);
    await expect(sdk.Sandbox.getInfo(sandbox.sandboxId)).rejects.toThrow(/not found/);
    await expect(sdk.Sandbox.connect(sandbox.sandboxId)).rejects.toThrow(/not found/);
    await expect(sandbox.commands.run("true")).rejects.toThrow();
  });

  test("commands say how they end, take input, and are found again by their pid after a pause", async () => {
    const sandbox = await create();
    const { commands } = sandbox;
    await expect(commands.run("echo out; exit 3")).rejects.toMatchObject({
      exitCode: 3,
      stdout: "out\n",
    });
    expect((await commands.run("pwd; echo $A", { cwd: "/tmp", envs: { A: "b" } })).stdout).toBe(
      "/tmp\nb\n",
    );
    expect((await commands.run("id -un", { user: "root" })).stdout).toBe("root\n");
    await expect(commands.run("true", { user: "nobody-here" })).rejects.toThrow(/no user|no such/i);
    await expect(commands.run("sleep 60", { timeoutMs: 1_000 })).rejects.toBeInstanceOf(
      sdk.TimeoutError,
    );
    await until("the command that took too long to be gone", async () => {
      return (await commands.list()).length === 0;
    });

    let streamed = "";
    const cat = await commands.run("cat; echo end", {
      background: true,
      stdin: true,
      onStdout: (text) => void (streamed += text),
    });
    await commands.sendStdin(cat.pid, "one\n");
    await until("the line to come back", () => streamed === "one\n");
    await commands.sendStdin(cat.pid, "two\n");
    await commands.closeStdin(cat.pid);
    expect(await cat.wait()).toMatchObject({ exitCode: 0, stdout: "one\ntwo\nend\n" });

    const killed = await commands.run("sleep 600", { background: true });
    expect(await killed.kill()).toBe(true);
    await expect(killed.wait()).rejects.toMatchObject({ exitCode: -1, error: "signal: killed" });

    const background = await commands.run("sleep 2; touch done; read line < /tmp/go; echo $line", {
      background: true,
      timeoutMs: 0,
    });
    await commands.run("mkfifo -m 666 /tmp/go");
    await background.disconnect();
    await sandbox.pause();
    await sandbox.connect();
    const again = await commands.connect(background.pid, { timeoutMs: 0 });
    await until("what was begun before the pause to be done", () => sandbox.files.exists("done"));
    await commands.run("echo kept > /tmp/go");
    expect(await again.wait()).toMatchObject({ exitCode: 0, stdout: "kept\n" });
    await expect(commands.connect(4_000_000)).rejects.toThrow(/no program/i);
    const lines = await commands.run("seq 1 200000");
    expect(lines.stdout.length).toBe(1_288_895);
    expect(lines.stdout.endsWith("\n200000\n")).toBe(true);
  });

  test("a stream of a command ends when its sandbox is paused, and says so", async () => {
    const sandbox = await create();
    const running = await sandbox.commands.run("sleep 600", { background: true, timeoutMs: 0 });
    const ended = expect(running.wait()).rejects.toBeInstanceOf(sdk.TimeoutError);
    await sandbox.pause();
    await ended;
    await sandbox.connect();
    expect((await sandbox.commands.list()).map(({ pid }) => pid)).toEqual([running.pid]);
  });

  test("files go up and down whole, in every form, and folders are made, moved and removed", async () => {
    const sandbox = await create();
    const { files, commands } = sandbox;
    const written = await files.write("a/b/c.txt", "text");
    expect(written).toMatchObject({ name: "c.txt", path: "/home/user/a/b/c.txt", type: "file" });
    expect(await files.read("a/b/c.txt")).toBe("text");
    expect(await files.read("~/a/b/c.txt")).toBe("text");
    const bytes = await files.read("/home/user/a/b/c.txt", { format: "bytes" });
    expect(Buffer.from(bytes).toString()).toBe("text");
    expect(await (await files.read("a/b/c.txt", { format: "blob" })).text()).toBe("text");
    await files.write("empty", "");
    expect(await files.read("empty")).toBe("");
    const many = await files.write([
      { path: "m1", data: "1" },
      { path: "/tmp/m2", data: new TextEncoder().encode("2").buffer },
      { path: "m3", data: new Blob(["3"]) },
    ]);
    expect(many.map(({ path }) => path)).toEqual(["/home/user/m1", "/tmp/m2", "/home/user/m3"]);
    expect((await commands.run("cat m1 /tmp/m2 m3")).stdout).toBe("123");

    const large = Buffer.alloc(12 * 1024 * 1024, "0123456789abcdef\n");
    await files.write("large", new Blob([large]).stream());
    await files.write("large-form", new Blob([large]));
    await files.write("large-gzip", new Blob([large]), { gzip: true });
    const { stdout } = await commands.run("sha256sum large* | cut -d' ' -f1 | sort -u | wc -l");
    expect(stdout.trim()).toBe("1");
    let size = 0;
    for await (const chunk of await files.read("large", { format: "stream" })) size += chunk.length;
    expect(size).toBe(large.length);

    await commands.run("chmod 750 /home/user/m1", { user: "root" });
    await files.write("m1", "newer");
    expect(await files.getInfo("m1")).toMatchObject({
      ...{ name: "m1", path: "/home/user/m1", type: "file", size: 5 },
      ...{ mode: 0o750, permissions: "-rwxr-x---", owner: "user", group: "user" },
    });
    await files.write("/etc/made-by-user", "as there");
    await files.write("/opt/deep/er/file", "as there");
    expect(await files.getInfo("/opt/deep/er/file")).toMatchObject({ owner: "user" });
    await files.write("/root/secret", "s", { user: "root" });
    expect(await files.getInfo("/root/secret")).toMatchObject({ owner: "root", mode: 0o644 });

    expect(await files.makeDir("d/e")).toBe(true);
    expect(await files.makeDir("d/e")).toBe(false);
    await files.write("d/e/f", "f");
    await commands.run("ln -s d/e link && ln -s nowhere dangling");
    expect(await files.read("link/f")).toBe("f");
    await files.write("link/g", "g");
    expect(await files.exists("d/e/g")).toBe(true);
    expect(await files.getInfo("link")).toMatchObject({
      type: "dir",
      symlinkTarget: "/home/user/d/e",
    });
    expect((await files.list("d")).map(({ path, type }) => [path, type])).toEqual([
      ["/home/user/d/e", "dir"],
    ]);
    expect((await files.list("d", { depth: 2 })).map(({ name }) => name)).toEqual(["e", "f", "g"]);
    expect(await files.read("/bin/sh", { format: "bytes" })).toBeInstanceOf(Uint8Array);
    expect(await files.rename("d/e/f", "moved/to/f")).toMatchObject({
      path: "/home/user/moved/to/f",
    });
    expect(await files.exists("d/e/f")).toBe(false);
    await files.remove("d");
    expect(await files.exists("d")).toBe(false);
    await files.remove("d");
    await expect(files.read("d")).rejects.toBeInstanceOf(sdk.FileNotFoundError);
    await expect(files.list("nowhere")).rejects.toBeInstanceOf(sdk.FileNotFoundError);
    await expect(files.read("moved")).rejects.toBeInstanceOf(sdk.InvalidArgumentError);
    await expect(files.write("moved", "x")).rejects.toBeInstanceOf(sdk.InvalidArgumentError);
  });

  test("signed paths let in whoever has them, for what they name and until they end", async () => {
    const sandbox = await create();
    await sandbox.files.write("shared.txt", "shared");
    const down = await sandbox.downloadUrl("shared.txt", { useSignatureExpiration: 600 });
    expect(await (await fetch(down)).text()).toBe("shared");
    const forever = await sandbox.downloadUrl("shared.txt", { user: "root" });
    expect((await fetch(forever)).status).toBe(404);
    const up = await sandbox.uploadUrl("given.txt", { useSignatureExpiration: 600 });
    const form = new FormData();
    form.append("file", new Blob(["given"]), "ignored.txt");
    expect((await fetch(up, { method: "POST", body: form })).status).toBe(200);
    expect(await sandbox.files.read("given.txt")).toBe("given");
    const packed = new Uint8Array(gzipSync("packed"));
    const headers = { "content-encoding": "gzip", "content-type": "application/octet-stream" };
    expect((await fetch(up, { method: "POST", body: packed, headers })).status).toBe(200);
    expect(await sandbox.files.read("given.txt")).toBe("packed");
    const past = await sandbox.downloadUrl("shared.txt", { useSignatureExpiration: -10 });
    const other = down.replace("shared.txt", "given.txt");
    for (const url of [past, other, up]) expect((await fetch(url)).status).toBe(401);
  });

  test("a folder is watched, with what is below it", async () => {
    const sandbox = await create();
    const { files } = sandbox;
    await files.makeDir("w/sub");
    await files.write("w/there", "1");
    const seen: string[] = [];
    const note = ({ type, name }: { type: string; name: string }) =>
      void seen.push(`${type} ${name}`);
    const handle = await files.watchDir("w", note, { recursive: true, timeoutMs: 0 });
    await files.write("w/sub/new", "1");
    await files.write("w/there", "2");
    await files.rename("w/there", "w/moved");
    await files.remove("w/moved");
    await sandbox.commands.run("chmod 600 w/sub/new");
    const wanted = [
      "create sub/new",
      "write there",
      "rename there",
      "create moved",
      "remove moved",
    ];
    await until(`all of it to be told: ${wanted.join()}`, () =>
      [...wanted, "chmod sub/new"].every((one) => seen.includes(one)),
    ).catch((error: unknown) => {
      throw new Error(`seen: ${seen.join()}`, { cause: error });
    });
    await handle.stop();
    await expect(files.watchDir("nowhere", note)).rejects.toBeInstanceOf(sdk.FileNotFoundError);
  });

  test("a terminal takes input and sizes, and goes on after a pause", async () => {
    const sandbox = await create();
    let shown = "";
    const onData = (data: Uint8Array) => void (shown += Buffer.from(data).toString());
    const type = (text: string) =>
      sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode(text));
    const terminal = await sandbox.pty.create({ cols: 90, rows: 30, onData, timeoutMs: 0 });
    await type("stty size; name=kept\n");
    await until("the size to be shown", () => shown.includes("30 90"));
    await sandbox.pty.resize(terminal.pid, { cols: 100, rows: 40 });
    await type("stty size\n");
    await until("the new size to be shown", () => shown.includes("40 100"));
    const ended = expect(terminal.wait()).rejects.toBeInstanceOf(sdk.TimeoutError);
    await sandbox.pause();
    await ended;
    await sandbox.connect();
    shown = "";
    const again = await sandbox.pty.connect(terminal.pid, { onData, timeoutMs: 0 });
    await type("echo still $name\n");
    await until("the shell to go on", () => shown.includes("still kept"));
    expect(await sandbox.pty.kill(terminal.pid)).toBe(true);
    await expect(again.wait()).rejects.toMatchObject({ exitCode: -1 });
    expect(await sandbox.pty.kill(terminal.pid)).toBe(false);
  });

  test("sandboxes are listed by metadata and state, page by page, and tell what they are", async () => {
    const mark = `m${Math.random()}`;
    const first = await create({ metadata: { mark, "a b": "c&d" } });
    const second = await create({ metadata: { mark } });
    const listed = async (options: Parameters<typeof sdk.Sandbox.list>[0]) => {
      const pages = sdk.Sandbox.list(options);
      const ids: string[] = [];
      while (pages.hasNext)
        ids.push(...(await pages.nextItems()).map(({ sandboxId }) => sandboxId));
      return ids;
    };
    const [one, two] = [first.sandboxId, second.sandboxId];
    expect(await listed({ query: { metadata: { mark } } })).toEqual([two, one]);
    expect(await listed({ query: { metadata: { mark } }, limit: 1, order: "asc" })).toEqual([
      one,
      two,
    ]);
    expect(await listed({ query: { metadata: { mark, "a b": "c&d" } } })).toEqual([one]);
    await second.pause();
    expect(await listed({ query: { metadata: { mark }, state: ["paused"] } })).toEqual([two]);
    expect(await listed({ query: { metadata: { mark }, state: ["running"] } })).toEqual([one]);
    expect(await listed({ query: { metadata: { mark: "none" } } })).toEqual([]);
    const info = await first.getInfo();
    expect(info).toMatchObject({
      ...{ sandboxId: one, state: "running", cpuCount: 1, memoryMB: 512 },
      metadata: { mark, "a b": "c&d" },
      lifecycle: { onTimeout: "kill", autoResume: false },
    });
    expect(info.endAt.getTime() - Date.now()).toBeGreaterThan(20 * 60_000);
    const [metric] = await first.getMetrics();
    expect(metric?.memTotal).toBeGreaterThan(400 * 1024 * 1024);
    expect(metric?.diskTotal).toBeGreaterThan(1024 ** 3);
    expect(await second.getMetrics()).toEqual([]);
  });

  test("a time-out ends what runs then: it is killed, or paused and woken by traffic", async () => {
    const sandbox = await create({ timeoutMs: 120_000 });
    const { endAt } = await sandbox.getInfo();
    await sandbox.connect({ timeoutMs: 1_000 });
    expect((await sandbox.getInfo()).endAt).toEqual(endAt);
    await sandbox.setTimeout(1_000);
    await until("the sandbox to be killed", async () => !(await sandbox.isRunning()));
    await until("it to be gone", async () => !(await sandbox.kill()));

    const lifecycle = { onTimeout: "pause", autoResume: true } as const;
    const resting = await create({ timeoutMs: 120_000, lifecycle });
    expect((await resting.getInfo()).lifecycle).toEqual(lifecycle);
    await resting.files.write("kept", "kept");
    await resting.setTimeout(1_000);
    await until("the sandbox to be paused", async () => {
      return (await resting.getInfo()).state === "paused";
    });
    expect((await resting.commands.run("cat kept")).stdout).toBe("kept");
    const info = await resting.getInfo();
    expect(info.state).toBe("running");
    expect(info.endAt.getTime() - Date.now()).toBeGreaterThan(60_000);
  });

  test("a port is open to all or to its token; traffic wakes only who wants that", async () => {
    const open = await create();
    await open.commands.run("python3 -m http.server 3000", { background: true, timeoutMs: 0 });
    await open.files.write("page", "from inside");
    const page = (sandbox: Sandbox, headers: Record<string, string> = {}) =>
      curl(`http://${sandbox.getHost(3000)}/page`, headers);
    await until("the server to listen", async () => (await page(open)).status === 200);
    expect((await page(open)).body).toBe("from inside");
    const named = { "e2b-sandbox-id": open.sandboxId, "e2b-sandbox-port": "3000" };
    expect((await curl(`http://${listen}/page`, named)).body).toBe("from inside");
    const other = { ...named, "e2b-sandbox-port": "3001" };
    expect(JSON.parse((await curl(`http://${listen}/page`, other)).body)).toEqual({
      message: "The sandbox is running but port is not open",
      ...{ sandboxId: open.sandboxId, port: 3001, code: 502 },
    });
    await open.pause();
    expect((await page(open)).status).toBe(502);
    expect((await open.getInfo()).state).toBe("paused");
    await open.connect();
    expect((await page(open)).body).toBe("from inside");

    const closed = await create({
      network: { allowPublicTraffic: false },
      lifecycle: { onTimeout: "pause", autoResume: true },
    });
    await closed.files.write("page", "closed");
    await closed.commands.run("python3 -m http.server 3000", { background: true, timeoutMs: 0 });
    const token = { "e2b-traffic-access-token": closed.trafficAccessToken ?? "" };
    await until("the server to listen", async () => (await page(closed, token)).status === 200);
    expect((await page(closed)).status).toBe(401);
    await closed.pause();
    expect((await page(closed)).status).toBe(401);
    expect((await closed.getInfo()).state).toBe("paused");
    expect((await page(closed, token)).body).toBe("closed");
    expect((await closed.getInfo()).state).toBe("running");
  });

  test("forks and snapshots go on from what was, each as a sandbox of its own", async () => {
    const sandbox = await create({ metadata: { of: "origin" } });
    await sandbox.files.write("state", "first");
    const sleeper = await sandbox.commands.run("sleep 900", { background: true, timeoutMs: 0 });
    const snapshot = await sandbox.createSnapshot({ name: "first" });
    expect(snapshot.names).toEqual(["first"]);
    await sandbox.files.write("state", "second");
    const forks = await sandbox.fork({ count: 2, timeoutMs: 600_000 });
    for (const fork of forks) {
      if (!(fork instanceof sdk.Sandbox)) throw fork;
      made.push(fork);
      expect(await fork.files.read("state")).toBe("second");
      expect((await fork.commands.list()).map(({ pid }) => pid)).toEqual([sleeper.pid]);
      await fork.files.write("state", "fork");
    }
    expect(await sandbox.files.read("state")).toBe("second");
    const unnamed = await sandbox.createSnapshot();
    const pages = sandbox.listSnapshots({ limit: 1 });
    const found: string[] = [];
    while (pages.hasNext)
      found.push(...(await pages.nextItems()).map(({ snapshotId }) => snapshotId));
    expect(found).toEqual([snapshot.snapshotId, unnamed.snapshotId]);
    const back = await sdk.Sandbox.create(snapshot.snapshotId, {
      metadata: { of: "snapshot" },
      timeoutMs: 600_000,
    });
    made.push(back);
    expect(await back.files.read("state")).toBe("first");
    expect((await back.getInfo()).metadata).toEqual({ of: "snapshot" });
    expect(await sdk.Sandbox.deleteSnapshot(snapshot.snapshotId)).toBe(true);
    expect(await sdk.Sandbox.deleteSnapshot(snapshot.snapshotId)).toBe(false);
    await expect(sdk.Sandbox.fork("01aaaaaaaaaaaaaaaaaaaaaaaa")).rejects.toBeInstanceOf(
      sdk.SandboxNotFoundError,
    );
  });

  test("without its memory a sandbox begins anew from its disk", async () => {
    const sandbox = await create();
    await sandbox.files.write("kept", "kept");
    await sandbox.commands.run("sleep 900", { background: true, timeoutMs: 0 });
    expect(await sandbox.pause({ keepMemory: false })).toBe(true);
    expect((await sandbox.getInfo()).state).toBe("paused");
    await sandbox.connect();
    expect(await sandbox.files.read("kept")).toBe("kept");
    expect(await sandbox.commands.list()).toEqual([]);
  });

  test("what is wrong or not there is said in E2B's form", async () => {
    await expect(sdk.Sandbox.create("no-such-image")).rejects.toThrow(/404/);
    await expect(sdk.Sandbox.create({ apiKey: "e2b_00" })).rejects.toBeInstanceOf(
      sdk.AuthenticationError,
    );
    const volumeMounts = { "/data": "volume" };
    await expect(sdk.Sandbox.create({ volumeMounts })).rejects.toThrow(/501.*not supported/i);
    await expect(sdk.Sandbox.kill("nobody")).resolves.toBe(false);
    const sandbox = await create();
    const headers = { "E2b-Sandbox-Id": sandbox.sandboxId };
    const health = await fetch(`http://${listen}/health`, { headers });
    expect([health.status, await health.json()]).toMatchObject([401, { code: 401 }]);
    await expect(sandbox.updateNetwork({ denyOut: ["10.0.0.0/8"] })).resolves.toBeUndefined();
  });
});

/** Over the wire itself: the SDK has no tags. */
async function startTagged(sandbox: Sandbox, tag: string): Promise<number> {
  const token = (sandbox as unknown as { envdAccessToken: string }).envdAccessToken;
  const transport = createConnectTransport({
    ...{ baseUrl: `http://${listen}`, httpVersion: "1.1" },
    interceptors: [
      (next) => (request) => {
        request.header.set("x-access-token", token);
        request.header.set("e2b-sandbox-id", sandbox.sandboxId);
        return next(request);
      },
    ],
  });
  const request = { process: { cmd: "/bin/sleep", args: ["900"] }, tag, stdin: false };
  for await (const { event } of createClient(Process, transport).start(request)) {
    if (event?.event.case === "start") return event.event.value.pid;
  }
  throw new Error("It did not start");
}

test("a daemon that is killed costs nothing: programs, tokens and time-outs are as they were", async () => {
  const { Sandbox } = await import("e2b");
  const sandbox = await Sandbox.create({ timeoutMs: 600_000, envs: { A: "b" } });
  const before = await sandbox.getInfo();
  const running = await sandbox.commands.run("sleep 900", { background: true, timeoutMs: 0 });
  let shown = "";
  const onData = (data: Uint8Array) => void (shown += Buffer.from(data).toString());
  const terminal = await sandbox.pty.create({ cols: 80, rows: 24, onData, timeoutMs: 0 });
  const tagged = await startTagged(sandbox, "mine");
  const cut = expect(terminal.wait()).rejects.toThrow();
  await expect(
    Promise.all([running.wait(), daemon.restart({ PERDURE_LISTEN: listen })]),
  ).rejects.toThrow();
  await until("the daemon to be back", async () => {
    return sandbox.isRunning().catch(() => false);
  });
  expect((await sandbox.getInfo()).endAt).toEqual(before.endAt);
  expect((await sandbox.commands.run("echo $A")).stdout).toBe("b\n");
  const pids = (await sandbox.commands.list()).map(({ pid }) => pid);
  expect(pids).toEqual([running.pid, terminal.pid, tagged]);
  const [fork] = await sandbox.fork({ timeoutMs: 600_000 });
  if (!(fork instanceof Sandbox)) throw new Error("There is no fork");
  for (const one of [sandbox, fork]) {
    const tags = (await one.commands.list()).map(({ pid, tag }) => [pid, tag]);
    expect(tags).toEqual([
      [running.pid, undefined],
      [terminal.pid, undefined],
      [tagged, "mine"],
    ]);
  }
  await fork.kill();
  await cut;
  await sandbox.pty.connect(terminal.pid, { onData, timeoutMs: 0 });
  await sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode("echo still $((6*7))\n"));
  await until("the terminal to go on", () => shown.includes("still 42"));
  const headers = { "x-api-key": process.env["E2B_API_KEY"] ?? "" };
  const url = `http://${listen}/v2/sandboxes/${sandbox.sandboxId}/logs?limit=1`;
  expect(await (await fetch(url, { headers })).json()).toMatchObject({
    logs: [{ level: "info", message: expect.stringMatching(/^created /) as string }],
  });
  await sandbox.kill();
});

test("the services answer in binary, too, and by the host's name", async () => {
  const { Sandbox } = await import("e2b");
  const sandbox = await Sandbox.create({ timeoutMs: 600_000 });
  const token = (sandbox as unknown as { envdAccessToken: string }).envdAccessToken;
  const transport = createConnectTransport({
    baseUrl: `http://${listen}`,
    httpVersion: "1.1",
    useBinaryFormat: true,
    interceptors: [
      (next) => (request) => {
        request.header.set("x-access-token", token);
        request.header.set("host", `49983-${sandbox.sandboxId}.localhost`);
        return next(request);
      },
    ],
  });
  const programs = createClient(Process, transport);
  const said: string[] = [];
  const start = { process: { cmd: "/bin/echo", args: ["binary"] }, tag: "mine", stdin: false };
  for await (const { event } of programs.start(start)) {
    if (event?.event.case === "data") {
      said.push(Buffer.from(event.event.value.output.value ?? []).toString());
    }
  }
  expect(said.join("")).toBe("binary\n");
  const cat = { process: { cmd: "/bin/cat" }, tag: "cat" };
  const output = programs.start(cat)[Symbol.asyncIterator]();
  expect((await output.next()).value).toMatchObject({ event: { event: { case: "start" } } });
  const selected = { selector: { case: "tag", value: "cat" } } as const;
  async function* input() {
    yield { event: { case: "start", value: { process: selected } } } as const;
    const stdin = new TextEncoder().encode("streamed");
    const bytes = { input: { input: { case: "stdin", value: stdin } } } as const;
    await Promise.resolve();
    yield { event: { case: "data", value: bytes } } as const;
  }
  await programs.streamInput(input());
  await programs.closeStdin({ process: selected });
  const rest: string[] = [];
  for (let next = await output.next(); next.done !== true; next = await output.next()) {
    const { event } = next.value.event ?? {};
    if (event?.case === "data") rest.push(Buffer.from(event.value.output.value ?? []).toString());
  }
  expect(rest.join("")).toBe("streamed");

  const files = createClient(Filesystem, transport);
  const { watcherId } = await files.createWatcher({ path: ".", recursive: false });
  await sandbox.files.write("seen", "1");
  const names = new Set<string>();
  await until("the watcher to have seen it", async () => {
    for (const { name } of (await files.getWatcherEvents({ watcherId })).events) names.add(name);
    return names.has("seen");
  });
  await sandbox.pause();
  await sandbox.connect();
  await expect(files.getWatcherEvents({ watcherId })).rejects.toThrow(/may have been missed/);
  await sandbox.files.write("later", "1");
  await until("the watcher to go on", async () => {
    for (const { name } of (await files.getWatcherEvents({ watcherId })).events) names.add(name);
    return names.has("later");
  });
  await files.removeWatcher({ watcherId });
  await expect(files.getWatcherEvents({ watcherId })).rejects.toThrow(/no such watcher/);
  await sandbox.kill();
});
