import { mkdtemp, rm, stat, writeFile } from "node:fs/promises";
import { request as httpRequest } from "node:http";
import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { errorBodySchema, errorTable, openApiDocument, PerdureError } from "@perdure/protocol";
import { violations } from "../../../../test/contract/api/conformance.ts";
import { createFakeImages } from "../../../../test/contract/api/fake-images.ts";
import { createFakeCommands } from "../../../../test/contract/api/fake-commands.ts";
import type { FakeCommands } from "../../../../test/contract/api/fake-commands.ts";
import { createEventLog, createRequestKeeper } from "../../../../test/contract/api/fake-server.ts";
import { createMemoryStateStore } from "../../../../test/contract/memory-state-store.ts";
import { sampleEvent } from "../../../../test/contract/state-store-event.ts";
import type { NewEvent, StateStore } from "../core/ports/state-store.ts";
import { createSystemClock } from "../clock.ts";
import { openApiServer } from "./server.ts";
import type { ApiServer, RequestLogEntry } from "./server.ts";

let folder: string;
let socketPath: string;
let commands: FakeCommands;
let server: ApiServer;
let log: RequestLogEntry[];
let state: StateStore;
let shutdowns: number;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "perdure-api-"));
  socketPath = join(folder, "run", "perdure.sock");
  commands = createFakeCommands();
  state = createMemoryStateStore();
  log = [];
  shutdowns = 0;
  server = await openApiServer(options());
});
afterEach(async () => {
  commands.dispose();
  await server.close(0);
  await rm(folder, { recursive: true });
});

const options = () => ({
  commands,
  images: createFakeImages(),
  socketPath,
  state,
  clock: createSystemClock(),
  daemonLog: () => undefined,
  requestKeeper: createRequestKeeper(state),
  events: createEventLog(state),
  tokenKey: new Uint8Array(32),
  spoolDir: join(folder, "spool"),
  health: () => ({
    version: "0.1.0",
    pid: 1,
    startedAtMs: 1,
    home: folder,
    url: null,
    authorityFile: null,
  }),
  metrics: () => ({ loopDelayMs: { p50: 1, p99: 2, max: 3 } }),
  shutdown: () => {
    shutdowns += 1;
  },
  log: (entry: RequestLogEntry) => void log.push(entry),
});

interface Answer {
  status: number;
  headers: IncomingHttpHeaders;
  text: string;
  bytes: Buffer;
  json: () => unknown;
}

interface Sent {
  headers?: Record<string, string>;
  body?: string | Buffer;
}

function open(method: string, path: string, { headers = {}, body }: Sent = {}) {
  return new Promise<IncomingMessage>((resolve, reject) => {
    const request = httpRequest({ socketPath, method, path, headers }, resolve);
    request.once("error", reject);
    request.end(body);
  });
}

/** Whatever is sent and answered fits the OpenAPI document. */
async function send(method: string, path: string, sent: Sent = {}): Promise<Answer> {
  const response = await open(method, path, sent);
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk as Buffer);
  const bytes = Buffer.concat(chunks);
  const text = bytes.toString();
  const { statusCode: status = 0, headers } = response;
  const requestBody = (sent.body ?? "").toString();
  expect(violations({ method, url: path, requestBody, status, headers, body: text })).toEqual([]);
  return { status, headers, text, bytes, json: () => JSON.parse(text) as unknown };
}

const post = (path: string, body: unknown): Promise<Answer> =>
  send("POST", path, {
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });

function expectTyped(answer: Answer): string {
  const body = errorBodySchema.parse(answer.json());
  expect(answer.status).toBe(errorTable[body.code].status);
  return body.code;
}

const lines = (text: string): Record<string, unknown>[] =>
  text
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as Record<string, unknown>);

describe("socket", () => {
  it("is open to its owner only, in a folder that is too", async () => {
    expect((await stat(socketPath)).mode & 0o777).toBe(0o600);
    expect((await stat(join(folder, "run"))).mode & 0o777).toBe(0o700);
  });

  it("is refused to a second daemon, and kept working for the first", async () => {
    await expect(openApiServer(options())).rejects.toMatchObject({ code: "daemon_running" });
    expect((await send("GET", "/v1/health")).status).toBe(200);
  });

  it("replaces the file of a daemon that died, and nothing that is not a socket", async () => {
    const { spawnSync } = await import("node:child_process");
    const left = join(folder, "left.sock");
    const script = `require("net").createServer().listen(${JSON.stringify(left)}, () => process.kill(process.pid, "SIGKILL"))`;
    spawnSync(process.execPath, ["-e", script]);
    expect((await stat(left)).isSocket()).toBe(true);
    const second = await openApiServer({ ...options(), socketPath: left });
    await second.close();
    await writeFile(left, "precious");
    const refused = openApiServer({ ...options(), socketPath: left });
    await expect(refused).rejects.toMatchObject({ code: "bad_request" });
  });

  it("says at once where its folder cannot be made", async () => {
    const inProc = { ...options(), socketPath: "/proc/1/perdure/socket" };
    await expect(openApiServer(inProc)).rejects.toMatchObject({
      code: "path_not_found",
      message: expect.stringMatching(
        /^Cannot make the socket's folder "\/proc\/1\/perdure": ENOENT/,
      ) as string,
    });
  });

  it("says so where its path is too long", async () => {
    const long = { ...options(), socketPath: join(folder, "x".repeat(100)) };
    await expect(openApiServer(long)).rejects.toThrow(/at most 107 bytes/);
  });
});

describe("agents", () => {
  it("creates with the defaults, shows by name and id, lists, removes", async () => {
    const created = await post("/v1/agents", { name: "a1" });
    expect(created.status).toBe(201);
    const view = created.json() as { id: string };
    expect(commands.executed[0]).toEqual({
      kind: "create",
      tenant: "default",
      name: "a1",
      image: "debian",
      shape: { memoryBytes: 512 << 20, cpus: 1, diskBytes: 2 ** 33 },
      onCrash: "checkpoint",
    });
    expect((await send("GET", "/v1/agents/a1")).json()).toEqual(view);
    expect((await send("GET", `/v1/agents/${view.id}`)).json()).toEqual(view);
    expect((await send("GET", "/v1/agents?prefix=a")).json()).toEqual({
      agents: [view],
      next: null,
    });
    expect((await send("DELETE", "/v1/agents/a1")).json()).toMatchObject({ state: "removed" });
    expect(expectTyped(await send("GET", "/v1/agents/a1"))).toBe("agent_not_found");
  });

  it("translates each verb into its command, with and without a body", async () => {
    await post("/v1/agents", { name: "a1" });
    for (const kind of ["sleep", "wake", "stop", "start", "recover", "checkpoint"] as const) {
      expect((await send("POST", `/v1/agents/a1/${kind}`)).status, kind).toBe(200);
      expect(commands.executed.at(-1)).toEqual({ kind, tenant: "default", agent: "a1" });
      expect((await post(`/v1/agents/a1/${kind}`, {})).status, kind).toBe(200);
    }
    await post("/v1/agents/a1/recover", { from: "disk" });
    expect(commands.executed.at(-1)).toMatchObject({ kind: "recover", from: "disk" });
    await post("/v1/agents/a1/restore", { checkpoint: "crash-3-disk" });
    expect(commands.executed.at(-1)).toMatchObject({ kind: "restore", checkpoint: "crash-3-disk" });
    const forked = await post("/v1/agents/a1/fork", { names: ["a2"] });
    expect(forked.status).toBe(201);
    expect(forked.json()).toMatchObject({ forks: [{ agent: { name: "a2" } }] });
    expect(expectTyped(await post("/v1/agents/a1/fork", { names: ["a2"] }))).toBe("agent_exists");
    expect(expectTyped(await post("/v1/agents/a1/fork", {}))).toBe("bad_request");
    await post("/v1/agents/a1/checkpoint", { name: "after" });
    expect((await send("DELETE", "/v1/agents/a1/checkpoints/after")).status).toBe(200);
    expect(commands.executed.at(-1)).toMatchObject({ kind: "drop", checkpoint: "after" });
    expect(expectTyped(await send("DELETE", "/v1/agents/a1/checkpoints/after"))).toBe(
      "checkpoint_not_found",
    );
    expect(expectTyped(await send("DELETE", "/v1/agents/a1/checkpoints/No!"))).toBe("bad_request");
    expect(expectTyped(await post("/v1/agents/a1/restore", {}))).toBe("bad_request");
    await post("/v1/agents/a1/checkpoint", { name: "before" });
    expect(commands.executed.at(-1)).toMatchObject({ kind: "checkpoint", name: "before" });
    const checkpoints = (await send("GET", "/v1/agents/a1/checkpoints")).json();
    expect(checkpoints).toMatchObject({ checkpoints: { length: 3 } });
    const report = (await send("GET", "/v1/agents/a1/report")).json();
    expect(report).toMatchObject({ report: { verdict: "continue" } });
    expect((await send("GET", "/v1/doctor")).json()).toMatchObject({ ready: true });
  });

  it("passes on the engine's errors as they are, and hides defects but logs them", async () => {
    await post("/v1/agents", { name: "a1" });
    const refusal = new PerdureError("agent_paused", 'Cannot sleep agent "a1": disk is full', {
      hint: "Free some space.",
      details: { neededBytes: 5 },
    });
    commands.failNext(refusal);
    const refused = await send("POST", "/v1/agents/a1/sleep");
    expect(refused.status).toBe(507);
    expect(refused.json()).toEqual(refusal.toJSON());
    commands.failNext(new TypeError("secret=hunter2"));
    const defect = await send("POST", "/v1/agents/a1/sleep");
    expect(expectTyped(defect)).toBe("internal");
    expect(defect.text).not.toContain("hunter2");
    await expect.poll(() => log.at(-1)?.cause).toContain("hunter2");
  });
});

describe("requests that do not fit", () => {
  const json = { "content-type": "application/json" };
  it.each<[string, string, string, Sent, string]>([
    ["unknown route", "GET", "/v2/agents", {}, "not_found"],
    ["unknown method", "PATCH", "/v1/agents", {}, "not_found"],
    ["malformed JSON", "POST", "/v1/agents", { headers: json, body: "{" }, "bad_request"],
    [
      "another media type",
      "POST",
      "/v1/agents",
      { headers: { "content-type": "text/plain" }, body: "x" },
      "bad_request",
    ],
    [
      "a body that poisons",
      "POST",
      "/v1/agents",
      { headers: json, body: '{"__proto__":{"name":"a"}}' },
      "bad_request",
    ],
    ["an array as body", "POST", "/v1/agents", { headers: json, body: "[]" }, "bad_request"],
    [
      "null as body of a create",
      "POST",
      "/v1/agents",
      { headers: json, body: "null" },
      "bad_request",
    ],
    [
      "null as body of a verb",
      "POST",
      "/v1/agents/a1/wake",
      { headers: json, body: "null" },
      "bad_request",
    ],
    ["no body of a create", "POST", "/v1/agents", {}, "bad_request"],
    [
      "a large body",
      "POST",
      "/v1/agents",
      { headers: json, body: `"${"x".repeat(1 << 20)}"` },
      "too_large",
    ],
    [
      "an exec that does not fit the link",
      "POST",
      "/v1/agents/a1/exec",
      { headers: json, body: JSON.stringify({ argv: ["echo", "x".repeat(100_000)] }) },
      "too_large",
    ],
    ["a name no agent can have", "GET", "/v1/agents/A_1", {}, "bad_request"],
    ["a very long name", "GET", `/v1/agents/${"a".repeat(3000)}`, {}, "bad_request"],
    ["a broken escape", "GET", "/v1/agents/%zz", {}, "bad_request"],
    ["an unknown query field", "GET", "/v1/agents?sort=up", {}, "bad_request"],
    ["a query field twice", "GET", "/v1/agents?prefix=a&prefix=b", {}, "bad_request"],
    ["a limit of none", "GET", "/v1/agents?limit=0", {}, "bad_request"],
    ["a negative process", "GET", "/v1/agents/a1/processes/-1/output", {}, "bad_request"],
    [
      "a fraction as offset",
      "GET",
      "/v1/agents/a1/processes/1/output?offset=1.5",
      {},
      "bad_request",
    ],
    ["a relative path", "GET", "/v1/agents/a1/files?path=etc", {}, "bad_request"],
    ["a path with NUL", "GET", "/v1/agents/a1/files?path=/a%00b", {}, "bad_request"],
    ["no path", "GET", "/v1/agents/a1/files", {}, "bad_request"],
    ["headers too large", "GET", "/v1/health", { headers: { x: "x".repeat(20_000) } }, "too_large"],
  ])("answers %s with a typed error", async (_title, method, path, sent, code) => {
    expect(expectTyped(await send(method, path, sent))).toBe(code);
    expect(commands.executed).toEqual([]);
    expect((await send("GET", "/v1/health")).status).toBe(200);
  });

  it.each([
    [{ name: "a1", memoryBytes: 1 }, "body.memoryBytes"],
    [{ name: "a1", colour: "red" }, "body"],
    [{ name: "A" }, "body.name"],
    [{}, "body.name"],
  ])("names the field of %j", async (body, field) => {
    const answer = await post("/v1/agents", body);
    expect(answer.json()).toMatchObject({ code: "bad_request", details: { field } });
  });

  it("answers bytes that are not HTTP with a typed error", async () => {
    const text = await new Promise<string>((resolve) => {
      const socket = connect(socketPath, () => socket.write("\x16\x03\x01 hello\r\n\r\n"));
      let answer = "";
      socket.on("data", (chunk) => (answer += chunk.toString()));
      socket.on("close", () => {
        resolve(answer);
      });
    });
    expect(text).toMatch(/^HTTP\/1\.1 400 /);
    expect(text).toContain('"code":"bad_request"');
  });

  it("stays typed and healthy whatever body and path it is sent", async () => {
    const routes = [
      "/v1/agents",
      "/v1/agents/a1/checkpoint",
      "/v1/agents/a1/recover",
      "/v1/agents/none/exec",
      "/v1/agents/none/processes/1/signal",
    ];
    const field = fc.constantFrom(
      "name",
      "argv",
      "env",
      "memoryBytes",
      "from",
      "signal",
      "cwd",
      "stdin",
    );
    const body = fc.oneof(
      fc.json(),
      fc.string({ unit: "binary" }),
      fc.dictionary(field, fc.jsonValue()).map((value) => JSON.stringify(value)),
    );
    await fc.assert(
      fc.asyncProperty(fc.constantFrom(...routes), body, async (path, text) => {
        const answer = await send("POST", path, { headers: json, body: text });
        if (answer.status >= 400) expect(expectTyped(answer)).not.toBe("internal");
      }),
      { numRuns: 300 },
    );
    await fc.assert(
      fc.asyncProperty(fc.webPath(), fc.webQueryParameters(), async (path, query) => {
        const answer = await send("GET", `/v1/agents${path}?${query}`);
        if (answer.status >= 400) expect(expectTyped(answer)).not.toBe("internal");
      }),
      { numRuns: 100 },
    );
    expect((await send("GET", "/v1/health")).status).toBe(200);
  });

  it("refuses to do what it does not know is expected, in words", async () => {
    const answer = await send("GET", "/v1/agents", { headers: { expect: "nothing" } });
    expect(answer.status).toBe(400);
    expect(answer.json()).toMatchObject({
      code: "bad_request",
      details: { field: "headers.expect" },
    });
  });

  it("keeps bodies, queries and headers out of the log", async () => {
    await send("GET", "/v1/agents/a1/files?path=/hunter2", {
      headers: { authorization: "hunter2" },
    });
    await post("/v1/agents/a1/exec", { argv: ["x"], env: { KEY: "hunter2" }, hunter2: 1 });
    await expect.poll(() => log.length).toBe(2);
    expect(JSON.stringify(log)).not.toContain("hunter2");
    expect(log[0]).toMatchObject({ method: "GET", route: "/v1/agents/:agent/files", status: 404 });
  });
});

describe("processes", () => {
  const exec = async (...argv: string[]): Promise<number> => {
    const answer = await post("/v1/agents/a1/exec", { argv, stdin: true });
    expect(answer.status).toBe(201);
    return (answer.json() as { process: number }).process;
  };
  const outputPath = (process: number, offset = 0): string =>
    `/v1/agents/a1/processes/${process}/output?offset=${offset}`;
  beforeEach(() => post("/v1/agents", { name: "a1" }));

  it("streams both outputs with offsets, then the exit", async () => {
    const process = await exec("sh", "-c", "printf one; sleep 0.1; printf two >&2; exit 3");
    const answer = await send("GET", outputPath(process));
    expect(answer.headers["content-type"]).toBe("application/x-ndjson");
    expect(lines(answer.text)).toEqual([
      { type: "output", stream: "stdout", offset: 0, data: "b25l" },
      { type: "output", stream: "stderr", offset: 3, data: "dHdv" },
      { type: "exit", exitCode: 3, signal: null, timedOut: false },
    ]);
    const rest = lines((await send("GET", outputPath(process, 4))).text);
    expect(rest[0]).toEqual({ type: "output", stream: "stderr", offset: 4, data: "d28=" });
  });

  it("answers the head at once, however long a program is silent", async () => {
    const response = await open("GET", outputPath(await exec("sleep", "600")));
    expect(response.statusCode).toBe(200);
    response.destroy();
  });

  it("carries stdin, ends it, and refuses it after", async () => {
    const process = await exec("cat");
    const path = `/v1/agents/a1/processes/${process}/stdin`;
    const headers = { "content-type": "application/octet-stream" };
    const bytes = Buffer.from([0, 255, 10, 1]);
    expect((await send("POST", path, { headers, body: bytes })).status).toBe(204);
    expect((await send("POST", `${path}?end=true`, { headers })).status).toBe(204);
    const [output, exit] = lines((await send("GET", outputPath(process))).text);
    expect(output).toMatchObject({ data: bytes.toString("base64") });
    expect(exit).toMatchObject({ exitCode: 0 });
    expect(expectTyped(await send("POST", path, { headers, body: "x" }))).toBe("stdin_closed");
    const large = await send("POST", path, { headers, body: Buffer.alloc((1 << 20) + 1) });
    expect(expectTyped(large)).toBe("too_large");
  });

  it("lets a reader go without ending the process, also a silent one", async () => {
    const process = await exec("sh", "-c", "printf a; cat; exit 7");
    const response = await open("GET", outputPath(process));
    await new Promise((resolve) => response.once("data", resolve));
    response.destroy();
    await new Promise((resolve) => setTimeout(resolve, 50));
    const processes = (await send("GET", "/v1/agents/a1/processes")).json();
    expect(processes).toMatchObject({ processes: [{ process, running: true }] });
    await send("POST", `/v1/agents/a1/processes/${process}/stdin?end=true`);
    const again = lines((await send("GET", outputPath(process))).text);
    expect(again.at(-1)).toMatchObject({ type: "exit", exitCode: 7 });
  });

  it("tells the engine at once that a reader went, though the process is silent", async () => {
    let told: AbortSignal | undefined;
    commands.output = (_target, _offset, signal) => {
      told = signal;
      return Promise.resolve({
        [Symbol.asyncIterator]: () => ({ next: () => new Promise(() => undefined) }),
      });
    };
    const request = httpRequest({ socketPath, path: outputPath(1) });
    request.on("error", () => undefined);
    request.end();
    await expect.poll(() => told?.aborted).toBe(false);
    request.destroy();
    await expect.poll(() => told?.aborted).toBe(true);
  });

  it("sends a signal, and reports it", async () => {
    const process = await exec("sleep", "60");
    const path = `/v1/agents/a1/processes/${process}/signal`;
    expect((await post(path, { signal: 9 })).status).toBe(204);
    const [exit] = lines((await send("GET", outputPath(process))).text);
    expect(exit).toEqual({ type: "exit", exitCode: null, signal: 9, timedOut: false });
    expect(commands.executed.at(-1)).toMatchObject({ kind: "signal", signal: 9, tree: true });
  });

  it("says interrupted when the agent sleeps, and when the daemon closes", async () => {
    const process = await exec("sh", "-c", "printf abc; sleep 60");
    /** Reads to the end; resolves to how, once what was printed so far is read. */
    const reading = async () => {
      const response = await open("GET", outputPath(process));
      response.setEncoding("utf8");
      let said = "";
      const ended = new Promise<string>((resolve) => response.once("end", () => resolve(said)));
      await new Promise<void>((resolve) => {
        response.on("data", (chunk: string) => {
          said += chunk;
          const bytes = lines(said.slice(0, said.lastIndexOf("\n") + 1)).map(({ data }) =>
            Buffer.from(String(data), "base64").toString(),
          );
          if (bytes.join("").startsWith("abc")) resolve();
        });
      });
      return { end: ended.then((text) => lines(text).at(-1)) };
    };
    const first = await reading();
    await send("POST", "/v1/agents/a1/sleep");
    expect(await first.end).toEqual({
      type: "interrupted",
      reason: "sleep",
      offset: 3,
    });
    const second = await reading();
    await server.close();
    expect(await second.end).toEqual({
      type: "interrupted",
      reason: "daemon",
      offset: 3,
    });
  });

  it("answers a process it does not know with a typed error", async () => {
    expect(expectTyped(await send("GET", outputPath(99)))).toBe("process_not_found");
  });

  it("ends a stream that fails with a typed error in it", async () => {
    commands.output = () =>
      Promise.resolve(
        (async function* () {
          await Promise.resolve();
          yield { type: "cut", from: 0, to: 5 } as const;
          throw new PerdureError("guest_timeout", "The guest does not answer");
        })(),
      );
    const events = lines((await send("GET", outputPath(1))).text);
    expect(events[0]).toEqual({ type: "cut", from: 0, to: 5 });
    expect(events[1]).toMatchObject({ type: "error", error: { code: "guest_timeout" } });
  });

  it("asks the guest for no more than a slow reader takes", async () => {
    let produced = 0;
    const bytes = new Uint8Array(65_536);
    let ended = false;
    commands.output = (_target, _offset, signal) =>
      Promise.resolve(
        (async function* () {
          try {
            while (!signal.aborted && produced < 2000) {
              await Promise.resolve();
              yield {
                type: "output",
                stream: "stdout",
                offset: produced++ * 65_536,
                bytes,
              } as const;
            }
          } finally {
            ended = true;
          }
        })(),
      );
    const response = await open("GET", outputPath(1));
    response.pause();
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(produced).toBeLessThan(50);
    response.destroy();
    await expect.poll(() => ended).toBe(true);
  });
});

describe("files", () => {
  const path = "/v1/agents/a1/files?path=/home/user/a";
  beforeEach(() => post("/v1/agents", { name: "a1" }));

  it.each([0, 1, 65_537, 5 << 20])("takes and gives back %i bytes whole", async (size) => {
    const body = Buffer.alloc(size, "perdure!");
    const headers = { "content-length": String(size) };
    const put = await send("PUT", `${path}&mode=750`, { headers, body });
    expect(put.status).toBe(204);
    const got = await send("GET", path);
    expect(got.headers).toMatchObject({
      "perdure-file-size": String(size),
      "perdure-file-mode": "750",
      "perdure-file-uid": "1000",
    });
    expect(got.bytes.equals(body)).toBe(true);
  });

  it("refuses chunks, and more than the limit, before it reads them", async () => {
    const chunked = await send("PUT", path, {
      headers: { "transfer-encoding": "chunked" },
      body: "x",
    });
    expect(expectTyped(chunked)).toBe("bad_request");
    const code = await new Promise((resolve) => {
      const request = httpRequest(
        { socketPath, method: "PUT", path, headers: { "content-length": "9999999999" } },
        (response) => {
          resolve(response.statusCode);
          request.destroy();
        },
      );
      request.on("error", () => undefined);
      request.write("x");
    });
    expect(code).toBe(413);
  });

  it("answers a refusal to an uploader that is still sending", async () => {
    const body = Buffer.alloc(8 << 20);
    const headers = { "content-length": String(body.length) };
    const denied = await send("PUT", "/v1/agents/a1/files?path=/denied/a", { headers, body });
    expect(expectTyped(denied)).toBe("path_denied");
    const full = await send("PUT", "/v1/agents/a1/files?path=/full/a", { headers, body });
    expect(expectTyped(full)).toBe("disk_full");
    const unknown = await send("PUT", "/v1/agents/a2/files?path=/a", { headers, body });
    expect(expectTyped(unknown)).toBe("agent_not_found");
  });

  it("leaves nothing of an upload whose sender went away", async () => {
    let failure: unknown;
    const begun = Promise.withResolvers<undefined>();
    const original = commands.writeFile.bind(commands);
    commands.writeFile = (target, bytes) => {
      begun.resolve(undefined);
      return original(target, bytes).catch((error: unknown) => {
        failure = error;
        throw error;
      });
    };
    const headers = { "content-length": "1000" };
    const request = httpRequest({ socketPath, method: "PUT", path, headers });
    request.on("error", () => undefined);
    request.write("x".repeat(500));
    await begun.promise;
    request.destroy();
    await expect.poll(() => failure).toMatchObject({ code: "cancelled" });
    expect(expectTyped(await send("GET", path))).toBe("path_not_found");
  });
});

describe("events", () => {
  const append = (...parts: Partial<NewEvent>[]): Promise<void> =>
    state.commit(
      parts.map((part) => {
        const event = sampleEvent({ atMs: Date.now(), ...part });
        return { kind: "append-event", event };
      }),
    );

  /** Reads blocks until `enough` says so, then leaves. */
  async function follow(path: string, headers: Record<string, string>, count: number) {
    const response = await open("GET", path, { headers });
    let text = "";
    for await (const chunk of response) {
      text += String(chunk);
      if (text.split("data: ").length > count) break;
    }
    response.destroy();
    const { statusCode: status = 0, headers: answered } = response;
    const exchange = { method: "GET", url: path, requestBody: "", status, headers: answered };
    expect(violations({ ...exchange, body: text })).toEqual([]);
    return { text, headers: answered };
  }

  it("answers pages of the log, by agent and kind", async () => {
    await append({}, { kind: "failed" }, { name: "other" }, {});
    const page = await send("GET", "/v1/events?follow=false&limit=2");
    expect(page.json()).toMatchObject({ events: [{ id: 1 }, { id: 2 }], next: 2, position: 2 });
    const rest = await send("GET", "/v1/events?follow=false&after=2");
    expect(rest.json()).toMatchObject({ events: [{ id: 3 }, { id: 4 }], next: null });
    const failed = await send("GET", "/v1/events?follow=false&kind=failed,paused&agent=one");
    expect(failed.json()).toMatchObject({ events: [{ id: 2, kind: "failed" }], position: 4 });
  });

  it("are of an agent that is or was there", async () => {
    await append({ name: "gone" });
    for (const follow of ["true", "false"]) {
      const response = await send("GET", `/v1/events?follow=${follow}&agent=nope`);
      expect(expectTyped(response)).toBe("agent_not_found");
    }
    const { agent } = sampleEvent({ name: "gone" });
    for (const ref of ["gone", agent]) {
      const page = await send("GET", `/v1/events?follow=false&agent=${ref}`);
      expect(page.json()).toMatchObject({ events: [{ name: "gone" }] });
    }
  });

  it("streams what is kept and what comes, and goes on after the last id that was seen", async () => {
    await append({}, {});
    const following = follow("/v1/events?after=0", {}, 3);
    await append({});
    const { text, headers } = await following;
    expect(headers["content-type"]).toBe("text/event-stream");
    expect(headers["cache-control"]).toBe("no-store");
    expect([...text.matchAll(/^id: (\d+)\ndata: /gm)].map(([, id]) => id)).toEqual(["1", "2", "3"]);
    // As a browser connects again: with the URL of its first call.
    const again = await follow("/v1/events?after=0", { "last-event-id": "2" }, 1);
    expect(again.text).toMatch(/id: 3\ndata: /);
    expect(again.text).not.toMatch(/id: 1\n/);
  });

  it("says which events a reader came too late for", async () => {
    await append({}, {}, {});
    await state.commit([{ kind: "collect-events", sinceMs: 0, countMax: 1 }]);
    const { text } = await follow("/v1/events?after=1", {}, 2);
    expect(text).toContain('id: 2\ndata: {"kind":"gap","from":2,"to":2}\n\n');
    expect(text).toContain("id: 3\ndata: ");
  });

  it.each<[string, Record<string, string>]>([
    ["?after=9", {}],
    ["", { "last-event-id": "9" }],
    ["?after=-1", {}],
    ["?after=1e3", {}],
    ["?after=99999999999999999999", {}],
    ["", { "last-event-id": "garbage" }],
    ["?kind=nonsense", {}],
    ["?kind=", {}],
    ["?follow=maybe", {}],
    ["?follow=false&limit=0", {}],
    ["?after=1&after=2", {}],
  ])("refuses %j %j", async (query, headers) => {
    expect(expectTyped(await send("GET", `/v1/events${query}`, { headers }))).toBe("bad_request");
  });

  it("ends when the daemon closes, and lets a reader go that left", async () => {
    const response = await open("GET", "/v1/events");
    await new Promise((resolve) => response.once("data", resolve));
    const ended = new Promise((resolve) => response.once("end", resolve));
    response.resume();
    await server.close();
    await ended;
  });
});

describe("daemon", () => {
  it("answers what it is, how it does, and the document of its API", async () => {
    expect((await send("GET", "/v1/health")).json()).toMatchObject({ pid: 1 });
    expect((await send("GET", "/v1/metrics")).json()).toMatchObject({ loopDelayMs: { p99: 2 } });
    const document = (await send("GET", "/v1/openapi.json")).json();
    expect(document).toEqual(JSON.parse(JSON.stringify(openApiDocument("0.1.0"))));
  });

  it("answers a shutdown before it happens", async () => {
    expect((await send("POST", "/v1/shutdown")).status).toBe(202);
    await expect.poll(() => shutdowns).toBe(1);
  });

  it("closes though a request never ends", async () => {
    const socket = connect(socketPath);
    socket.on("error", () => undefined);
    socket.write("POST /v1/agents HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n");
    await new Promise((resolve) => setTimeout(resolve, 50));
    await server.close(50);
    await expect(stat(socketPath)).rejects.toMatchObject({ code: "ENOENT" });
  });
});

describe("an idempotency key", () => {
  const json = { "content-type": "application/json" };
  const keyed = (key: string, method: string, path: string, body?: unknown): Promise<Answer> =>
    send(method, path, {
      headers: { ...json, "idempotency-key": key },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });

  it("makes one agent of a create that is sent again, with or without quotes and white space", async () => {
    const first = await keyed("k1", "POST", "/v1/agents", { name: "a1" });
    const again = await keyed('"k1"', "POST", "/v1/agents", { image: "debian", name: "a1" });
    expect([first.status, first.headers["idempotency-replayed"]]).toEqual([201, undefined]);
    expect([again.status, again.headers["idempotency-replayed"]]).toEqual([201, "true"]);
    expect(again.text).toBe(first.text);
    expect(again.headers["content-type"]).toBe(first.headers["content-type"]);
    expect(commands.executed).toHaveLength(1);
    const conflict = await keyed("k1", "POST", "/v1/agents", { name: "a2" });
    expect(expectTyped(conflict)).toBe("idempotency_conflict");
    const elsewhere = await keyed("k1", "POST", "/v1/agents/a1/sleep");
    expect(expectTyped(elsewhere)).toBe("idempotency_conflict");
  });

  it("gives an error again as it was", async () => {
    await post("/v1/agents", { name: "a1" });
    const first = await keyed("k1", "POST", "/v1/agents", { name: "a1" });
    await send("DELETE", "/v1/agents/a1");
    const again = await keyed("k1", "POST", "/v1/agents", { name: "a1" });
    expect(expectTyped(again)).toBe("agent_exists");
    expect(again.text).toBe(first.text);
    expect(again.headers["idempotency-replayed"]).toBe("true");
  });

  it("covers every route that changes something, and leaves the others as they are", async () => {
    await post("/v1/agents", { name: "a1" });
    await keyed("exec", "POST", "/v1/agents/a1/exec", { argv: ["cat"], stdin: true });
    const again = await keyed("exec", "POST", "/v1/agents/a1/exec", { argv: ["cat"], stdin: true });
    expect(again.json()).toMatchObject({ process: 1 });
    expect((await send("GET", "/v1/agents/a1/processes")).json()).toMatchObject({
      processes: { length: 1 },
    });
    const stdin = "/v1/agents/a1/processes/1/stdin";
    const bytes = (key: string, body: string, end = ""): Promise<Answer> =>
      send("POST", stdin + end, {
        headers: { "content-type": "application/octet-stream", "idempotency-key": key },
        body,
      });
    for (let i = 0; i < 3; i++) expect((await bytes("in", "once\n")).status).toBe(204);
    expect(expectTyped(await bytes("in", "twice\n"))).toBe("idempotency_conflict");
    await bytes("end", "", "?end=true");
    const output = lines((await send("GET", "/v1/agents/a1/processes/1/output")).text);
    expect(output[0]).toMatchObject({ data: Buffer.from("once\n").toString("base64") });
    for (const key of ["k", "k"]) {
      const answer = await keyed(key, "DELETE", "/v1/agents/a1");
      expect(answer.json()).toMatchObject({ state: "removed" });
    }
    for (const path of ["/v1/health", "/v1/agents"]) {
      const reads = [await keyed("k", "GET", path), await keyed("k", "GET", path)];
      expect(reads.map(({ status }) => status)).toEqual([200, 200]);
      expect(reads[1]?.headers["idempotency-replayed"]).toBeUndefined();
    }
  });

  it("takes a file once, and compares what is sent again", async () => {
    await post("/v1/agents", { name: "a1" });
    const path = "/v1/agents/a1/files?path=/home/user/a";
    let writes = 0;
    const original = commands.writeFile.bind(commands);
    commands.writeFile = (target, bytes) => {
      writes += 1;
      return original(target, bytes);
    };
    const put = (key: string, body: Buffer, to = path): Promise<Answer> =>
      send("PUT", to, {
        headers: { "idempotency-key": key, "content-length": String(body.length) },
        body,
      });
    const content = Buffer.alloc(5 << 20, "perdure");
    expect((await put("k1", content)).headers["idempotency-replayed"]).toBeUndefined();
    const again = await put("k1", content);
    expect([again.status, again.headers["idempotency-replayed"]]).toEqual([204, "true"]);
    expect(writes).toBe(1);
    const other = Buffer.from(content);
    other[other.length - 1] = 0;
    expect(expectTyped(await put("k1", other))).toBe("idempotency_conflict");
    expect(expectTyped(await put("k1", content, `${path}b`))).toBe("idempotency_conflict");
    expect((await send("GET", path)).bytes.equals(content)).toBe(true);
    // A refusal leaves the file as it was, so it is not kept.
    const denied = "/v1/agents/a1/files?path=/denied/a";
    for (const key of ["k2", "k2"]) {
      expect(expectTyped(await put(key, content, denied))).toBe("path_denied");
    }
    expect(writes).toBe(3);
  });

  it("joins one that is under way, though the first client went away", async () => {
    await post("/v1/agents", { name: "a1" });
    const begun = Promise.withResolvers<undefined>();
    const gate = Promise.withResolvers<undefined>();
    const original = commands.execute.bind(commands);
    commands.execute = async (command) => {
      begun.resolve(undefined);
      await gate.promise;
      return original(command);
    };
    const headers = { ...json, "idempotency-key": "k1" };
    const body = JSON.stringify({ name: "before" });
    const path = "/v1/agents/a1/checkpoint";
    const lost = httpRequest({ socketPath, method: "POST", path, headers });
    lost.on("error", () => undefined);
    lost.end(body);
    await begun.promise;
    lost.destroy();
    const again = send("POST", path, { headers, body });
    gate.resolve(undefined);
    expect((await again).headers["idempotency-replayed"]).toBe("true");
    expect((await send("GET", "/v1/agents/a1/checkpoints")).json()).toMatchObject({
      checkpoints: { length: 1 },
    });
  });

  it.each(["", "x".repeat(256), "a b", "one, two"])("is refused where it is %j", async (key) => {
    const answer = await keyed(key, "POST", "/v1/agents", { name: "a1" });
    expect(expectTyped(answer)).toBe("bad_request");
    expect(answer.json()).toMatchObject({ details: { field: "headers.idempotency-key" } });
    expect(commands.executed).toEqual([]);
  });
});
