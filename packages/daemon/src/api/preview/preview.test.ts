/** Preview hosts over real TCP, with servers of this host in place of programs inside. */
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, request as httpRequest } from "node:http";
import type { IncomingHttpHeaders, IncomingMessage, RequestListener } from "node:http";
import { connect, createServer as createTcpServer } from "node:net";
import type { AddressInfo, Server, Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { portLabel, type AgentId, type CreateKeyRequest } from "@perdure/protocol";
import { openFakeServer } from "../../../../../test/contract/api/fake-server.ts";
import type { FakeServer } from "../../../../../test/contract/api/fake-server.ts";
import { createMemoryStateStore } from "../../../../../test/contract/memory-state-store.ts";
import { sampleAgent } from "../../../../../test/contract/state-store-sample.ts";
import { createSystemClock } from "../../clock.ts";
import type { PortFacts } from "../../core/agent.ts";
import { ApiKeys } from "../api-keys.ts";
import { portOfHost } from "../port-host.ts";

const TOKEN = "pt_0123456789abcdef0123456789abcdef0123456789abcdef";
const MIB = 1024 * 1024;

let folder: string;
let fake: FakeServer;
let agent: AgentId;
let daemonPort: number;
let servers: Server[];
let keys: ApiKeys;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "perdure-preview-"));
  servers = [];
  const state = createMemoryStateStore();
  fake = await openFakeServer(join(folder, "run.sock"), folder, {
    state,
    tcp: { host: "127.0.0.1", port: 0, tls: null, corsOrigins: [] },
    previewAnswerMs: 2_000,
  });
  const view = await fake.commands.execute({
    ...{ kind: "create", tenant: "default", name: "a1", image: "debian", onCrash: "checkpoint" },
    shape: { memoryBytes: 512 * MIB, cpus: 1, diskBytes: 8192 * MIB },
  });
  agent = view.id;
  daemonPort = Number(new URL(fake.server.url ?? "").port);
  keys = new ApiKeys({ state, clock: createSystemClock(), log: () => undefined });
});
afterEach(async () => {
  await fake.close();
  for (const server of servers) {
    server.close();
    if ("closeAllConnections" in server) (server.closeAllConnections as () => void).call(server);
  }
  await rm(folder, { recursive: true });
});

/** A program of HTTP; the port that it listens on. */
async function program(serve: RequestListener, facts?: Partial<PortFacts>): Promise<number> {
  return listen(createServer({ keepAlive: true }, serve), facts);
}

async function listen(server: Server, facts: Partial<PortFacts> = {}): Promise<number> {
  servers.push(server);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  await own(port, facts);
  return port;
}

async function own(port: number, facts: Partial<PortFacts>): Promise<void> {
  const ports = { [port]: { public: false, token: TOKEN, ...facts } };
  const { generation } = await fake.commands.show({ tenant: "default", agent: "a1" });
  const row = sampleAgent("a1", { id: agent, ports, generation });
  await fake.state.commit([{ kind: "insert-agent", agent: row }]);
}

interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}
interface Sent {
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Buffer;
  readonly host?: string;
}

function begin(port: number, path: string, sent: Sent = {}) {
  const host = sent.host ?? `${portLabel(agent, port)}.localhost:${daemonPort}`;
  return httpRequest({
    ...{ host: "127.0.0.1", port: daemonPort, path, method: sent.method ?? "GET", agent: false },
    headers: { host, ...sent.headers },
  });
}

async function ask(port: number, path: string, sent: Sent = {}): Promise<Answer> {
  const request = begin(port, path, sent);
  request.end(sent.body);
  const [answer] = (await once(request, "response")) as [IncomingMessage];
  const { statusCode: status = 0, headers } = answer;
  return { status, headers, body: await text(answer) };
}

const withToken = { headers: { "x-perdure-token": TOKEN } };
const codeOf = ({ body }: Answer): unknown => (JSON.parse(body) as { code?: unknown }).code;

async function keyOf(request: Partial<CreateKeyRequest>): Promise<string> {
  const facts = { tenant: "default", name: "k", agents: null, expiresAtMs: null };
  return (await keys.create({ ...facts, scope: "use", ...request } as never)).token;
}

describe("which port a host names", () => {
  const id = "0123456789abcdefghjkmnpqrs";
  test.each([
    [`8000-${id}.localhost`, 8000],
    [`8000-${id.toUpperCase()}.LocalHost:7070`, 8000],
    [`1-${id}.localhost.`, 1],
    [`65535-${id}.localhost:1`, 65_535],
  ])("%s", (host, port) => {
    expect(portOfHost(host, "localhost")).toEqual({ agent: `ag_${id}`, port });
  });
  test.each([
    ...["", "localhost", `${id}.localhost`, `8000-${id}`, `8000-${id}.localhost.example`],
    ...[`65536-${id}.localhost`, `0-${id}.localhost`, `08-${id}.localhost`, `-1-${id}.localhost`],
    ...[`8000-${id}x.localhost`, `x.8000-${id}.localhost`, `8000-${id}..localhost`, "[::1]:80"],
    ...[`8000-${id}.evillocalhost`, `8000-ag_${id}.localhost`, `8000-${id.slice(1)}u.localhost`],
  ])("none: %s", (host) => {
    expect(portOfHost(host, "localhost")).toBeNull();
  });
});

describe("what passes", () => {
  test("method, path, headers and body go in; status, headers and body come out", async () => {
    const port = await program((request, response) => {
      void text(request).then((body) => {
        response.writeHead(201, "Made It", [
          ...["x-answer", "1", "Set-Cookie", "a=1; Domain=localhost; Path=/", "set-cookie", "b=2"],
          ...["Connection", "keep-alive, x-hop", "x-hop", "secret"],
        ]);
        const { method, url, headers } = request;
        response.end(JSON.stringify({ method, url, headers, body }));
      });
    });
    const answer = await ask(port, "/a/%2e%2e/b?x=1&perdure_token=&y=%20", {
      method: "POST",
      body: "hello",
      headers: {
        ...withToken.headers,
        ...{ cookie: `z=9; perdure_token=${TOKEN}; y=8`, connection: "x-own, content-length" },
        ...{ "x-own": "1", te: "trailers", "proxy-authorization": "Basic x", "x-other": "2" },
        ...{ authorization: "Basic own", "x-forwarded-for": "6.6.6.6", "x-real-ip": "6.6.6.6" },
      },
    });
    expect(answer.status).toBe(201);
    expect(answer.headers).toMatchObject({ "x-answer": "1", "set-cookie": ["a=1; Path=/", "b=2"] });
    expect(answer.headers).not.toHaveProperty("x-hop");
    const seen = JSON.parse(answer.body) as { url: string; body: string; headers: object };
    expect(seen).toMatchObject({ method: "POST", url: "/a/%2e%2e/b?x=1&y=%20", body: "hello" });
    expect(seen.headers).toMatchObject({
      ...{ host: `${portLabel(agent, port)}.localhost:${daemonPort}`, cookie: "z=9; y=8" },
      ...{ authorization: "Basic own", "x-other": "2", "content-length": "5" },
      ...{ "x-forwarded-for": "127.0.0.1", "x-forwarded-proto": "http" },
    });
    for (const name of ["x-own", "te", "proxy-authorization", "x-perdure-token", "x-real-ip"]) {
      expect(seen.headers).not.toHaveProperty(name);
    }
    expect(answer.body).not.toContain(TOKEN);
  });

  test("bodies of many megabytes stream both ways, and who does not read holds the program up", async () => {
    let written = 0;
    const port = await program((request, response) => {
      if (request.method === "POST") {
        request.pipe(response);
        return;
      }
      const block = Buffer.alloc(MIB);
      const more = (): void => {
        while (written < 512 * MIB && !response.destroyed) {
          written += MIB;
          if (!response.write(block)) return void response.once("drain", more);
        }
        response.end();
      };
      more();
    });
    const sent = Buffer.from(crypto.getRandomValues(new Uint8Array(65_536)));
    const whole = Buffer.concat(Array.from({ length: 160 }, () => sent));
    const upload = begin(port, "/", { ...withToken, method: "POST" });
    upload.end(whole);
    const [echo] = (await once(upload, "response")) as [IncomingMessage];
    expect(Buffer.concat(await Array.fromAsync(echo as AsyncIterable<Buffer>)).equals(whole)).toBe(
      true,
    );
    const download = begin(port, "/", withToken);
    download.end();
    const [answer] = (await once(download, "response")) as [IncomingMessage];
    for (let before = -1; before !== written;) {
      before = written;
      await new Promise((resolve) => setTimeout(resolve, 150));
    }
    expect(written).toBeLessThan(64 * MIB);
    answer.destroy();
  });

  test("what comes piece by piece is passed on piece by piece", async () => {
    let next = (): void => undefined;
    const port = await program((_request, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.flushHeaders();
      let count = 0;
      next = () => void response.write(`data: ${++count}\n\n`);
    });
    const request = begin(port, "/", withToken);
    request.end();
    const [answer] = (await once(request, "response")) as [IncomingMessage];
    for (let i = 1; i <= 3; i++) {
      next();
      const [piece] = (await once(answer, "data")) as [Buffer];
      expect(piece.toString()).toBe(`data: ${i}\n\n`);
    }
    answer.destroy();
  });

  test("connections wait for the next request, and one that the program closed meanwhile is not missed", async () => {
    let connections = 0;
    const server = createServer({ keepAliveTimeout: 0 }, (request, response) => {
      response.end(request.url);
    });
    server.on("connection", () => connections++);
    const port = await listen(server);
    for (let i = 0; i < 5; i++) expect((await ask(port, `/${i}`, withToken)).body).toBe(`/${i}`);
    expect(connections).toBe(1);
    server.closeAllConnections();
    expect((await ask(port, "/again", withToken)).body).toBe("/again");
    // Another generation has connections of its own.
    const before = connections;
    const row = await fake.state.agent(agent);
    if (row === null) throw new Error("The row is gone");
    await fake.commands.execute({ kind: "sleep", tenant: "default", agent: "a1" });
    expect(
      (await fake.commands.execute({ kind: "wake", tenant: "default", agent: "a1" })).agent,
    ).toMatchObject({ generation: row.generation + 1 });
    const woken = { ...row, generation: row.generation + 1, revision: row.revision + 1 };
    await fake.state.commit([
      { kind: "update-agent", agent: woken, expectedRevision: row.revision },
    ]);
    for (let i = 0; i < 3; i++) expect((await ask(port, "/woken", withToken)).status).toBe(200);
    expect(connections).toBe(before + 1);
  });

  test("a WebSocket passes both ways, and a refused one is answered", async () => {
    const sockets = new WebSocketServer({ noServer: true });
    const server = createServer();
    server.on("upgrade", (request, socket: Socket, head) => {
      if (request.url === "/no") {
        socket.on("error", () => undefined);
        socket.end("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
        return;
      }
      expect(request.headers["sec-websocket-protocol"]).toBe("chat");
      sockets.handleUpgrade(request, socket, head, (peer) => {
        peer.send("welcome");
        peer.on("message", (data, isBinary) => peer.send(data, { binary: isBinary }));
      });
    });
    const port = await listen(server);
    const headers = { host: `${portLabel(agent, port)}.localhost`, ...withToken.headers };
    const client = new WebSocket(`ws://127.0.0.1:${daemonPort}/`, ["chat"], { headers });
    const [welcome] = (await once(client, "message")) as [Buffer];
    expect(welcome.toString()).toBe("welcome");
    const block = Buffer.alloc(MIB, 5);
    client.send(block);
    const [back] = (await once(client, "message")) as [Buffer];
    expect(back.equals(block)).toBe(true);
    client.close();
    await once(client, "close");
    const refused = new WebSocket(`ws://127.0.0.1:${daemonPort}/no`, ["chat"], { headers });
    const [error] = (await once(refused, "error")) as [Error];
    expect(error.message).toContain("403");
    const stranger = new WebSocket(`ws://127.0.0.1:${daemonPort}/`, {
      headers: { host: headers.host },
    });
    const [unknown] = (await once(stranger, "error")) as [Error];
    expect(unknown.message).toContain("401");
  });
});

describe("who may visit", () => {
  const echo: RequestListener = (request, response) => {
    response.end(JSON.stringify([request.url, request.headers]));
  };

  test("a private port asks for a token; nothing tells it from an agent that is not there", async () => {
    const port = await program(echo);
    const none = await ask(port, "/");
    expect([none.status, codeOf(none)]).toEqual([401, "unauthenticated"]);
    expect((await ask(port, "/", { headers: { "x-perdure-token": `${TOKEN}0` } })).status).toBe(
      401,
    );
    const other = await ask(port + 1, "/", withToken);
    expect(other.status).toBe(401);
    const host = `${port}-0123456789abcdefghjkmnpqrs.localhost`;
    expect((await ask(port, "/", { host, ...withToken })).body).toBe(
      (await ask(port, "/", { headers: { "x-perdure-token": "pt_0" } })).body,
    );
    expect((await ask(port, "/", withToken)).status).toBe(200);
  });

  test("a public port asks for nothing", async () => {
    const port = await program(echo, { public: true });
    expect((await ask(port, "/")).status).toBe(200);
  });

  test("a token in the address becomes a cookie of that host, and is not passed on", async () => {
    const port = await program(echo);
    const first = await ask(port, `//evil.example/x?a=1&perdure_token=${TOKEN}`);
    expect(first.status).toBe(303);
    expect(first.headers.location).toBe("/evil.example/x?a=1");
    const [cookie = ""] = first.headers["set-cookie"] ?? [];
    expect(cookie).toBe(`perdure_token=${TOKEN}; Path=/; HttpOnly; SameSite=Lax`);
    const second = await ask(port, "/x", { headers: { cookie: cookie.split(";")[0] ?? "" } });
    expect(second.status).toBe(200);
    expect(second.body).not.toContain(TOKEN);
    const post = await ask(port, `/x?perdure_token=${TOKEN}`, { method: "POST", body: "x" });
    expect(post.status).toBe(200);
    expect(post.body).not.toContain(TOKEN);
  });

  test("an API key with scope use that reaches the agent lets in, others do not, none is passed on", async () => {
    const port = await program(echo);
    const use = await keyOf({});
    for (const [name, value] of [
      ["authorization", `Bearer ${use}`],
      ["x-perdure-token", use],
    ] as const) {
      const answer = await ask(port, "/", { headers: { [name]: value } });
      expect(answer.status).toBe(200);
      expect(answer.body).not.toContain("pdk_");
    }
    const read = await keyOf({ name: "read", scope: "read" });
    expect((await ask(port, "/", { headers: { "x-perdure-token": read } })).status).toBe(403);
    const narrow = await keyOf({ name: "narrow", agents: ["b1"] });
    const refused = await ask(port, "/", { headers: { "x-perdure-token": narrow } });
    expect([refused.status, codeOf(refused)]).toEqual([502, "agent_not_found"]);
    // No key where tokens are: it would be in addresses and cookies.
    expect((await ask(port, `/?perdure_token=${use}`)).status).toBe(401);
  });

  test("no host of an agent reaches /v1, and no other host a program", async () => {
    const port = await program((_request, response) => response.end("from inside"));
    const answer = await ask(port, "/v1/health", withToken);
    expect(answer.body).toBe("from inside");
    const v1 = await ask(port, "/", { ...withToken, host: "localhost" });
    expect(v1.status).toBe(401);
  });
});

describe("what fails", () => {
  test("nobody listens", async () => {
    const port = await program(() => undefined);
    servers[0]?.close();
    const answer = await ask(port, "/", withToken);
    expect([answer.status, codeOf(answer)]).toEqual([502, "port_refused"]);
    expect(answer.headers["content-type"]).toContain("application/json");
  });

  test("a program that never answers", async () => {
    const port = await program(() => undefined);
    const answer = await ask(port, "/", withToken);
    expect([answer.status, codeOf(answer)]).toEqual([502, "guest_timeout"]);
  });

  test.each([
    ["no HTTP", "hello\r\n\r\n"],
    ["a head without an end", `HTTP/1.1 200 OK\r\nx: ${"y".repeat(100_000)}`],
    ["two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"],
    ["nothing", ""],
  ])("a program that answers %s", async (_what, said) => {
    const port = await listen(
      createTcpServer((socket) => void socket.on("error", () => undefined).end(said)),
    );
    const answer = await ask(port, "/", withToken);
    expect([answer.status, codeOf(answer)]).toEqual([502, "connection_reset"]);
  });

  test("an answer that is cut short is cut short", async () => {
    const port = await program((_request, response) => {
      response.writeHead(200, { "content-length": "100" });
      response.write("half", () => response.destroy());
    });
    await expect(ask(port, "/", withToken)).rejects.toThrow("aborted");
  });

  test("a visitor that goes ends its request inside", async () => {
    const gone = Promise.withResolvers<undefined>();
    const begun = Promise.withResolvers<undefined>();
    const port = await program((_request, response) => {
      response.once("close", () => gone.resolve(undefined));
      begun.resolve(undefined);
    });
    const request = begin(port, "/", withToken);
    request.on("error", () => undefined);
    request.end();
    await begun.promise;
    request.destroy();
    await gone.promise;
  });

  test.each(["GET http://localhost/v1/health HTTP/1.1", "GET * HTTP/1.1", "get / HTTP/1.1"])(
    "%s does no harm",
    async (line) => {
      const port = await program((_request, response) => response.end("inside"));
      const socket = connect(daemonPort, "127.0.0.1");
      const host = `${portLabel(agent, port)}.localhost`;
      socket.write(
        `${line}\r\nHost: ${host}\r\nX-Perdure-Token: ${TOKEN}\r\nConnection: close\r\n\r\n`,
      );
      expect(await text(socket)).toMatch(/^HTTP\/1.1 (4|2)\d\d /);
    },
  );
});
