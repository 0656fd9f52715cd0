/** Failure cases from the field through E2B's surface, on real VMs: bad luck, vanishing clients, and curl alone. */
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { Agent, request as httpRequest } from "node:http";
import type { IncomingMessage } from "node:http";
import { connect } from "node:net";
import { networkInterfaces } from "node:os";
import { text as textOf } from "node:stream/consumers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Sandbox, TimeoutError } from "e2b";
import { DaemonUnderTest, until } from "./daemon-under-test.ts";
import { freePort } from "./free-port.ts";
import { machineOf } from "./host-view.ts";

const MIB = 1024 * 1024;
const daemon = new DaemonUnderTest();
const background = { background: true, timeoutMs: 0 } as const;
let listen: string;
let port: number;
let key: string;
let sandbox: Sandbox;

beforeAll(async () => {
  port = await freePort();
  listen = `127.0.0.1:${port}`;
  await daemon.start({ PERDURE_LISTEN: listen });
  const { e2bKey } = await daemon.client.keys.create({ name: "e2b", scope: "admin" });
  key = e2bKey;
  process.env["E2B_API_KEY"] = e2bKey;
  process.env["E2B_API_URL"] = `http://${listen}`;
  process.env["E2B_SANDBOX_URL"] = `http://${listen}`;
  sandbox = await Sandbox.create({ timeoutMs: 24 * 60 * 60_000 });
});
afterAll(async () => {
  expect(await daemon.end()).toEqual([]);
});

const agentId = (): string => `ag_${sandbox.sandboxId}`;
const run = async (line: string): Promise<string> =>
  (await sandbox.commands.run(line, { timeoutMs: 0, user: "root" })).stdout;
const token = (): string => (sandbox as unknown as { envdAccessToken: string }).envdAccessToken;
const inside = (): Record<string, string> => ({
  "e2b-sandbox-id": sandbox.sandboxId,
  "x-access-token": token(),
});

function framed(message: object): Buffer {
  const body = Buffer.from(JSON.stringify(message));
  const head = Buffer.alloc(5);
  head.writeUInt32BE(body.length, 1);
  return Buffer.concat([head, body]);
}

const bash = (line: string) => ({
  process: { cmd: "/bin/bash", args: ["-lc", line] },
  stdin: false,
});

/** A stream of the Process service over the wire itself; its answer is not read yet. */
async function begin(line: string): Promise<IncomingMessage> {
  const request = httpRequest({
    ...{ host: "127.0.0.1", port, method: "POST", path: "/process.Process/Start", agent: false },
    headers: { ...inside(), "content-type": "application/connect+json" },
  });
  request.end(framed(bash(line)));
  const [answer] = (await once(request, "response")) as [IncomingMessage];
  return answer;
}

const running = async (pattern: string): Promise<number> =>
  Number(await run(`pgrep -fc '^${pattern}' || true`));

describe("streams", () => {
  test("C05 what is open at a pause ends at once and says so; the next call works", async () => {
    const program = await sandbox.commands.run("sleep 7001", background);
    const ended = expect(program.wait()).rejects.toBeInstanceOf(TimeoutError);
    const raw = await begin("sleep 7002");
    const said = textOf(raw);
    const watch = Promise.withResolvers<Error | undefined>();
    const onExit = (error?: Error): void => watch.resolve(error);
    await sandbox.files.watchDir(".", () => undefined, { timeoutMs: 0, onExit });
    expect(await sandbox.pause()).toBe(true);
    await ended;
    expect(await said).toMatch(/"error":\{"code":"unavailable","message":"[^"]*"connect\\" with/);
    expect(await watch.promise).toBeInstanceOf(Error);
    await sandbox.connect();
    expect(await run("echo back")).toBe("back\n");
    expect(await running("sleep 700")).toBe(2);
    await run("pkill -f '^sleep 700'");
  });

  test("C40 the end comes after the last byte, and never while it runs", async () => {
    const answer = await begin("seq 1 300000; sleep 0.5; echo last; exit 7");
    const said = (await textOf(answer)).split("\u0000").join("");
    const end = said.indexOf('"end":');
    expect(said.slice(end)).toContain('"exitCode":7');
    expect(said.lastIndexOf('"data":')).toBeLessThan(end);
    const last = Buffer.from("last\n").toString("base64");
    expect(said.slice(0, end)).toContain(last);
  });

  test("C41 who does not read holds up its own program and nobody else, and misses nothing", async () => {
    const line = (mark: string) => `head -c 80M /dev/zero; echo done > /tmp/${mark}`;
    const slow = await begin(line("slow"));
    const leaving = await begin(line("left"));
    expect(await run("echo meanwhile")).toBe("meanwhile\n");
    expect(await run("cat /tmp/slow /tmp/left 2> /dev/null || true")).toBe("");
    leaving.destroy();
    await until("the program without a reader to go on", async () => {
      return (await run("cat /tmp/left 2> /dev/null || true")) === "done\n";
    });
    let bytes = 0;
    let rest = "";
    for await (const chunk of slow) {
      rest += (chunk as Buffer).toString("latin1");
      rest = rest.replace(/"stdout":"([A-Za-z0-9+/=]*)"/g, (_all, data: string) => {
        bytes += Buffer.from(data, "base64").length;
        return "";
      });
      // What is left of whole messages is short.
      const open = rest.lastIndexOf('"stdout":"');
      rest = open === -1 ? rest.slice(-1_000) : rest.slice(open);
    }
    expect(bytes).toBe(80 * MIB);
    expect(rest).toContain("exit status 0");
  });

  test("C42 a kill and a time-out end the whole tree, and answer when it is gone", async () => {
    const tree = "sleep 7003 & (sleep 7003 & sleep 7003) & wait";
    const program = await sandbox.commands.run(tree, background);
    const ended = expect(program.wait()).rejects.toMatchObject({ exitCode: -1 });
    await until("all of it to run", async () => (await running("sleep 7003")) === 3);
    expect(await program.kill()).toBe(true);
    expect(await running("sleep 7003")).toBe(0);
    await ended;
    await expect(sandbox.commands.run(tree, { timeoutMs: 2_000 })).rejects.toBeInstanceOf(
      TimeoutError,
    );
    await until("all of it to be gone", async () => (await running("sleep 7003")) === 0);
  });

  test("C43 a client that vanishes ends nothing; who attaches later misses nothing from there on", async () => {
    const line = "while :; do echo tick; sleep 0.1; done";
    const first = await sandbox.commands.run(line, background);
    const heard = { one: "", two: "" };
    await sandbox.commands.connect(first.pid, {
      timeoutMs: 0,
      onStdout: (text) => void (heard.one += text),
    });
    const vanishing = await begin("sleep 7004");
    vanishing.socket.destroy();
    const half = connect(port, "127.0.0.1");
    half.write(
      "POST /process.Process/Start HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nhalf",
    );
    await first.disconnect();
    const before = heard.one.length;
    await until("the other client to hear on", () => heard.one.length > before + 20);
    expect(await running("sleep 7004")).toBe(1);
    half.destroy();
    const again = await sandbox.commands.connect(first.pid, {
      timeoutMs: 0,
      onStdout: (text) => void (heard.two += text),
    });
    await until("the third to hear", () => heard.two.length > 20);
    expect(heard.two.replaceAll("tick\n", "")).toBe("");
    await again.kill();
    await run("pkill -f '^sleep 7004'");
  });

  test("a client that closes its side only has gone: nothing waits for it, and its program goes on", async () => {
    const body = framed(bash("sleep 7005"));
    const head = Object.entries({
      ...inside(),
      host: "x",
      "content-type": "application/connect+json",
      "content-length": String(body.length),
    }).map(([name, value]) => `${name}: ${value}\r\n`);
    const socket = connect({ port, host: "127.0.0.1", allowHalfOpen: true });
    socket.write(`POST /process.Process/Start HTTP/1.1\r\n${head.join("")}\r\n`);
    socket.write(body);
    await once(socket, "data");
    socket.resume();
    const closed = once(socket, "end");
    socket.end();
    await closed;
    expect(await running("sleep 7005")).toBe(1);
    await run("pkill -f '^sleep 7005'");
  });

  test("a guest that does not answer is a time-out at the caller's deadline, and is back afterwards", async () => {
    const pid = machineOf(daemon, agentId());
    process.kill(pid, "SIGSTOP");
    try {
      const options = { requestTimeoutMs: 2_000 };
      await expect(sandbox.commands.list(options)).rejects.toBeInstanceOf(TimeoutError);
      const answer = await fetch(`http://${listen}/process.Process/List`, {
        method: "POST",
        headers: { ...inside(), "content-type": "application/json", "connect-timeout-ms": "500" },
        body: "{}",
      });
      expect([answer.status, await answer.json()]).toMatchObject([
        504,
        { code: "deadline_exceeded" },
      ]);
    } finally {
      process.kill(pid, "SIGCONT");
    }
    expect(await run("echo back")).toBe("back\n");
  });
});

describe("files", () => {
  test.each([0, 1, 5 * MIB, 300 * MIB])(
    "C44 an upload of %i bytes is whole, and the user's",
    async (size) => {
      const block = Buffer.alloc(MIB, "0123456789abcdef");
      const pieces = Array.from({ length: size / MIB }, () => block);
      const data = size < MIB ? new Blob(["x".repeat(size)]) : new Blob(pieces);
      await sandbox.files.write("upload", data, { requestTimeoutMs: 300_000 });
      const digest = createHash("sha256");
      for await (const chunk of data.stream()) digest.update(chunk as Uint8Array);
      const facts = await run("cd /home/user; stat -c '%s %U' upload; sha256sum < upload");
      expect(facts).toBe(`${size} user\n${digest.digest("hex")}  -\n`);
      await sandbox.files.remove("upload");
    },
  );

  test("C44 an upload whose sender goes away leaves what was there, and nothing else", async () => {
    await sandbox.files.write("folder/kept", "before");
    for (const path of ["kept", "new"]) {
      const head = Object.entries({ ...inside(), host: "x", "content-length": 20 * MIB });
      const socket = connect(port, "127.0.0.1");
      socket.on("error", () => undefined);
      socket.write(
        `POST /files?path=folder/${path} HTTP/1.1\r\n${head.map((one) => `${one.join(": ")}\r\n`).join("")}\r\n`,
      );
      await new Promise((sent) => socket.write(Buffer.alloc(8 * MIB), sent));
      socket.destroy();
    }
    await until(
      "the halves to be gone",
      async () => (await run("ls -A /home/user/folder")) === "kept\n",
      90_000,
    );
    expect(await sandbox.files.read("folder/kept")).toBe("before");
  });

  test("C45 a link is followed inside the sandbox alone, and never where the link itself is meant", async () => {
    const home = (line: string): Promise<string> => run(`cd /home/user && ${line}`);
    await home("mkdir -p real/deep && echo r > real/deep/f && ln -s real link");
    await home("ln -s /etc/hostname host && ln -s ../../../../../../etc/hostname up");
    const name = await run("cat /etc/hostname");
    expect(await sandbox.files.read("host")).toBe(name);
    expect(await sandbox.files.read("up")).toBe(name);
    const listed = await sandbox.files.list("/home/user", { depth: 5 });
    expect(listed.filter(({ path }) => path.startsWith("/home/user/link/"))).toEqual([]);
    await sandbox.files.rename("link", "renamed");
    expect(await home("readlink renamed; ls real")).toBe("real\ndeep\n");
    await sandbox.files.remove("renamed");
    expect(await home("cat real/deep/f; ls -d renamed 2>&1 || true")).toMatch(/^r\nls: /);
    await home("mkdir real/tree && ln -s /home/user/real/deep real/tree/away");
    await sandbox.files.remove("real/tree");
    expect(await home("cat real/deep/f")).toBe("r\n");
    await home("ln -s loop-b loop-a; ln -s loop-a loop-b");
    await expect(sandbox.files.read("loop-a")).rejects.toThrow();
    await expect(sandbox.files.write("loop-a/x", "x")).rejects.toThrow();
  });
});

describe("ports", () => {
  beforeAll(async () => {
    await sandbox.files.write("/srv/page", "page");
    const serve = "cd /srv && exec python3 -m http.server 8000 2> /dev/null";
    await sandbox.commands.run(serve, { ...background, user: "root" });
    await until("the server to listen", async () => (await visit(undefined)) === "page");
  });

  async function visit(agent: Agent | undefined): Promise<string> {
    const headers = { host: sandbox.getHost(8000), connection: "keep-alive" };
    const to = { host: "127.0.0.1", port, path: "/page", headers };
    const request = httpRequest({ ...to, agent: agent ?? false });
    request.end();
    const [answer] = (await once(request, "response")) as [IncomingMessage];
    return textOf(answer);
  }

  test("C06 a visitor that keeps its connections is answered after each pause at the first try, as fast", async () => {
    const agent = new Agent({ keepAlive: true });
    const took: number[] = [];
    for (let cycle = 0; cycle < 4; cycle++) {
      for (let i = 0; i < 5; i++) {
        const beganMs = performance.now();
        expect(await visit(agent)).toBe("page");
        if (i === 0) took.push(performance.now() - beganMs);
      }
      await sandbox.pause();
      await sandbox.connect();
    }
    agent.destroy();
    const [, first = 0, ...later] = took;
    for (const one of later) expect(one).toBeLessThan(Math.max(first, 250) * 4);
  });

  test("C09 fifty snapshots under load cost no request, inside or from outside", async () => {
    const load = [
      "import time, urllib.request",
      "ok = bad = 0",
      "end = lambda: __import__('os').path.exists('/tmp/enough')",
      "while not end():",
      "    try: ok += urllib.request.urlopen('http://127.0.0.1:8000/page', timeout=60).read() == b'page'",
      "    except Exception as error: bad += 1; print(error)",
      "    time.sleep(0.01)",
      "print(ok, bad)",
    ];
    await sandbox.files.write("/tmp/load.py", load.join("\n"));
    const program = await sandbox.commands.run("python3 /tmp/load.py", background);
    const enough = new AbortController();
    let outside = 0;
    const visits = (async () => {
      for (; !enough.signal.aborted; outside++) expect(await visit(undefined)).toBe("page");
    })();
    for (let i = 0; i < 50; i++) {
      const { snapshotId } = await sandbox.createSnapshot();
      expect(await Sandbox.deleteSnapshot(snapshotId)).toBe(true);
    }
    enough.abort();
    await visits;
    await sandbox.files.write("/tmp/enough", "");
    const [ok = 0, bad] = (await program.wait()).stdout.split(" ").map(Number);
    expect(bad).toBe(0);
    expect(ok).toBeGreaterThan(50);
    expect(outside).toBeGreaterThan(50);
  });

  test("C64 nothing of the host is reached from inside, nor through a port of the sandbox", async () => {
    const own = Object.values(networkInterfaces())
      .flatMap((all) => all ?? [])
      .map(({ address, family }) => (family === "IPv6" ? `[${address}]` : address));
    for (const host of [...own, "10.0.2.2", "localhost", "api.localhost", "169.254.169.254"]) {
      const tried = `curl -s -m 5 --noproxy '*' http://${host}:${port}/v1/health || echo refused`;
      expect(await run(tried)).toBe("refused\n");
    }
    // The daemon's own port, as a port of the sandbox, is one inside: nobody listens there.
    const headers = { "e2b-sandbox-id": sandbox.sandboxId, "e2b-sandbox-port": String(port) };
    const answer = await fetch(`http://${listen}/v1/health`, { headers });
    expect([answer.status, await answer.json()]).toMatchObject([502, { code: 502, port }]);
  });
});

test("what is wrong or gone is refused in E2B's form, and costs the sandbox nothing", async () => {
  const other = await Sandbox.create({ timeoutMs: 600_000 });
  const { sandboxId } = other;
  const link = await other.downloadUrl("/etc/hostname", { useSignatureExpiration: 600 });
  expect((await fetch(link)).status).toBe(200);
  await other.kill();
  expect((await fetch(link)).status).toBe(401);
  for (const id of [sandboxId, "01aaaaaaaaaaaaaaaaaaaaaaaa", "nobody", "%00", "a".repeat(90)]) {
    for (const [method, path] of [
      ["GET", ""],
      ["DELETE", ""],
      ["POST", "/pause"],
      ["POST", "/connect"],
      ["POST", "/timeout"],
      ["POST", "/snapshots"],
      ["POST", "/fork"],
    ] as const) {
      const answer = await fetch(`http://${listen}/sandboxes/${id}${path}`, {
        method,
        headers: { "x-api-key": key, "content-type": "application/json" },
        ...(method === "POST" ? { body: JSON.stringify({ timeout: 60 }) } : {}),
      });
      expect([id.slice(0, 30), path, answer.status]).toEqual([id.slice(0, 30), path, 404]);
      expect(await answer.json()).toMatchObject({ code: 404 });
    }
    if (id === "%00") continue;
    const headers = { "e2b-sandbox-id": id, "x-access-token": token() };
    const health = await fetch(`http://${listen}/health`, { headers });
    expect([health.status, await health.json()]).toMatchObject([502, { code: 502 }]);
  }
  const long = await fetch(`http://${listen}/sandboxes/${"a".repeat(5_000)}`, {
    headers: { "x-api-key": key },
  });
  expect([long.status, await long.json()]).toMatchObject([400, { code: 400 }]);
  expect(await run("echo there")).toBe("there\n");
});

test("curl alone makes a sandbox, runs programs in it, and takes files in and out, as the guide says", async () => {
  const guide = await readFile("docs/guides/e2b.md", "utf8");
  const [, script = ""] = /```bash\n(.*?)```/s.exec(guide) ?? [];
  const child = spawn(
    "bash",
    ["-euo", "pipefail", "-c", script.replace(/127\.0\.0\.1:7070/, listen)],
    {
      env: { ...process.env, E2B_API_KEY: key },
      stdio: ["ignore", "pipe", "pipe"],
    },
  );
  const [out, said, [code]] = await Promise.all([
    textOf(child.stdout),
    textOf(child.stderr),
    once(child, "close") as Promise<[number]>,
  ]);
  expect([code, said]).toEqual([0, ""]);
  const [uploaded = "", read, bytes, user, stat = "", programs] = out.trimEnd().split("\n");
  expect(JSON.parse(uploaded)).toMatchObject([{ path: "/home/user/note" }]);
  expect([read, bytes, user, programs]).toEqual(["from curl", "9", "user", "1"]);
  expect(JSON.parse(stat)).toMatchObject({ entry: { name: "note", size: "9" } });
});
