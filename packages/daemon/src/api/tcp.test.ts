/** The door of callers with API keys: over real TCP, with commands that need no VM. */
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { request as httpRequest } from "node:http";
import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { WebSocket } from "ws";
import { ATTACH_PROTOCOL, keyLimits, keyProtocol } from "@perdure/protocol";
import type { CreatedKey, CreateKeyRequest } from "@perdure/protocol";
import { violations } from "../../../../test/contract/api/conformance.ts";
import { openFakeServer } from "../../../../test/contract/api/fake-server.ts";
import type { FakeServer } from "../../../../test/contract/api/fake-server.ts";
import { sampleEvent } from "../../../../test/contract/state-store-event.ts";
import { sampleAgent } from "../../../../test/contract/state-store-sample.ts";
import type { NewEvent } from "../core/ports/state-store.ts";
import type { TcpListen } from "./tcp.ts";

let folder: string;
let fake: FakeServer;
let url: string;
let logged: string[];

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "perdure-tcp-"));
  logged = [];
  await open();
});
afterEach(async () => {
  await fake.close();
  await rm(folder, { recursive: true });
});

const loopback: TcpListen = { host: "127.0.0.1", port: 0, tls: null, corsOrigins: [] };

async function open(tcp: Partial<TcpListen> = {}): Promise<void> {
  fake = await openFakeServer(join(folder, "run.sock"), folder, {
    tcp: { ...loopback, ...tcp },
    daemonLog: (level, message, facts) => {
      logged.push(`${level} ${message} ${JSON.stringify(facts)}`);
    },
  });
  url = fake.server.url ?? "";
}

interface Sent {
  readonly token?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: unknown;
}
interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
  readonly json: () => Record<string, unknown>;
}

function begin(method: string, path: string, sent: Sent, socketPath?: string) {
  return new Promise<IncomingMessage>((resolve, reject) => {
    const headers = {
      ...(sent.body === undefined ? {} : { "content-type": "application/json" }),
      ...(sent.token === undefined ? {} : { authorization: `Bearer ${sent.token}` }),
      ...sent.headers,
    };
    const to = new URL(path, url);
    const request =
      socketPath === undefined
        ? httpRequest(to, { method, headers, agent: false }, resolve)
        : httpRequest({ socketPath, method, path, headers, agent: false }, resolve);
    request.once("error", reject);
    request.end(sent.body === undefined ? undefined : JSON.stringify(sent.body));
  });
}

async function read(response: IncomingMessage): Promise<string> {
  let text = "";
  response.setEncoding("utf8");
  for await (const chunk of response) text += chunk as string;
  return text;
}

/** Whatever is answered fits the OpenAPI document. */
async function send(
  method: string,
  path: string,
  sent: Sent = {},
  socket = false,
): Promise<Answer> {
  const response = await begin(method, path, sent, socket ? fake.socketPath : undefined);
  const text = await read(response);
  const { statusCode: status = 0, headers } = response;
  const requestBody = sent.body === undefined ? "" : JSON.stringify(sent.body);
  if (method !== "OPTIONS") {
    expect(violations({ method, url: path, requestBody, status, headers, body: text })).toEqual([]);
  }
  return { status, headers, text, json: () => JSON.parse(text) as Record<string, unknown> };
}

const codeOf = ({ text }: Answer): unknown => (JSON.parse(text) as { code?: unknown }).code;

async function makeKey(request: Partial<CreateKeyRequest> = {}): Promise<CreatedKey> {
  const body = { name: `k${Math.random().toString(36).slice(2)}`, scope: "admin", ...request };
  const answer = await send("POST", "/v1/keys", { body }, true);
  expect(answer.status).toBe(201);
  return answer.json() as unknown as CreatedKey;
}

describe("who asks", () => {
  it("is told only that it is alive without a key, and everything with one", async () => {
    expect((await send("GET", "/v1/health")).json()).toEqual({ alive: true });
    const { token } = await makeKey({ scope: "read" });
    expect((await send("GET", "/v1/health", { token })).json()).toMatchObject({ home: folder });
    expect((await send("GET", "/v1/agents", { token })).json()).toEqual({ agents: [], next: null });
  });

  it("is asked for a key before it is told whether there is such a route", async () => {
    expect(codeOf(await send("GET", "/v2/nothing"))).toBe("unauthenticated");
    const { token } = await makeKey();
    expect(codeOf(await send("GET", "/v2/nothing", { token }))).toBe("not_found");
  });

  it("is refused with any token that is not exactly right, in the same words", async () => {
    const { key, token } = await makeKey();
    const secret = token.slice(-43);
    const last = token.at(-1) === "A" ? "B" : "A";
    const wrong = [
      "",
      "x",
      token.slice(0, -1),
      `${token}A`,
      `${token.slice(0, -2)}${last}${token.at(-1) ?? ""}`,
      token.replace("pdk_", "pdx_"),
      `pdk_${"0".repeat(26)}_${secret}`,
      `pdk_${key.id.slice(3)}_${"A".repeat(43)}`,
      key.id,
      (await fake.state.key(key.id))?.secretDigest ?? "",
    ];
    const words = new Set<string>();
    for (const each of wrong.slice(0, keyLimits.refusalsMax)) {
      const answer = await send("GET", "/v1/agents", { token: each });
      expect(codeOf(answer), each).toBe("unauthenticated");
      words.add(answer.text);
    }
    expect(words.size).toBe(1);
    expect((await send("GET", "/v1/agents", { token })).status).toBe(200);
  });

  it("takes a key in no other form than the header's", async () => {
    const { token } = await makeKey();
    for (const authorization of [token, `Basic ${token}`, `Bearer`, `Bearer  `]) {
      const answer = await send("GET", "/v1/agents", { headers: { authorization } });
      expect(codeOf(answer), authorization).toBe("unauthenticated");
    }
    const headers = { authorization: `bearer ${token}` };
    expect((await send("GET", "/v1/agents", { headers })).status).toBe(200);
    const inQuery = await send("GET", `/v1/agents?key=${token}`);
    expect(codeOf(inQuery)).toBe("unauthenticated");
  });

  it("is everybody on the unix socket, whatever key is sent along", async () => {
    const answer = await send("GET", "/v1/health", { token: "wrong" }, true);
    expect(answer.json()).toMatchObject({ home: folder });
  });

  it("is refused before its body is read", async () => {
    const socket = connect(Number(new URL(url).port), "127.0.0.1");
    socket.write(
      "PUT /v1/agents/a1/files?path=/a HTTP/1.1\r\nhost: x\r\ncontent-length: 999\r\n\r\n",
    );
    const [chunk] = (await once(socket, "data")) as [Buffer];
    expect(chunk.toString()).toMatch(/^HTTP\/1\.1 401 /);
    socket.destroy();
  });
});

describe("a key", () => {
  it("is shown once, and kept as a digest alone", async () => {
    const created = await makeKey({ name: "console", scope: "read" });
    expect(created.token).toMatch(/^pdk_[0-9a-z]{26}_[A-Za-z0-9_-]{43}$/);
    const secret = created.token.slice(-43);
    const stored = JSON.stringify(await fake.state.key(created.key.id));
    expect(stored).not.toContain(secret);
    const listed = await send("GET", "/v1/keys", {}, true);
    expect(listed.text).not.toContain(secret);
    expect(listed.text).not.toContain("secretDigest");
    expect(listed.json()).toMatchObject({ keys: [{ name: "console", scope: "read" }], next: null });
  });

  it("is not given again for an idempotency key, nor written down for it", async () => {
    const headers = { "idempotency-key": "once" };
    const body = { name: "k1", scope: "read" };
    const first = await send("POST", "/v1/keys", { headers, body }, true);
    expect(first.status).toBe(201);
    const again = await send("POST", "/v1/keys", { headers, body }, true);
    expect(codeOf(again)).toBe("idempotency_unfinished");
    expect((await fake.state.request("local", "once"))?.answer).toBeNull();
    expect((await send("GET", "/v1/keys", {}, true)).json()).toMatchObject({ keys: { length: 1 } });
  });

  it("notes when it was used last", async () => {
    const { key, token } = await makeKey();
    const before = Date.now();
    await send("GET", "/v1/agents", { token });
    await expect
      .poll(async () => (await fake.state.key(key.id))?.lastUsedAtMs)
      .toBeGreaterThanOrEqual(before);
  });

  it("is listed by name, page by page", async () => {
    for (const name of ["c", "a", "b"]) await makeKey({ name });
    const first = await send("GET", "/v1/keys?limit=2", {}, true);
    expect(first.json()).toMatchObject({ keys: [{ name: "a" }, { name: "b" }], next: "b" });
    const rest = await send("GET", "/v1/keys?limit=2&after=b", {}, true);
    expect(rest.json()).toMatchObject({ keys: [{ name: "c" }], next: null });
  });

  it("is refused a name that another has, and a time that is past", async () => {
    await makeKey({ name: "k1" });
    const body = { name: "k1", scope: "read" };
    expect(codeOf(await send("POST", "/v1/keys", { body }, true))).toBe("key_exists");
    const past = { name: "k2", scope: "read", expiresAtMs: 1 };
    expect(codeOf(await send("POST", "/v1/keys", { body: past }, true))).toBe("bad_request");
    expect(codeOf(await send("DELETE", "/v1/keys/none", {}, true))).toBe("key_not_found");
  });
});

describe("a scope", () => {
  it("says which one is needed", async () => {
    const { token } = await makeKey({ scope: "read" });
    const answer = await send("DELETE", "/v1/agents/a1", { token });
    expect(answer.json()).toMatchObject({ details: { needed: "admin", scope: "read" } });
  });
});

describe("a key that is limited to some agents", () => {
  const one = sampleAgent("a1");
  const two = sampleAgent("a2");
  const three = sampleAgent("a3");
  beforeEach(async () => {
    // The commands have agents of their own; who may reach which is asked of the store.
    await fake.state.commit([one, two, three].map((agent) => ({ kind: "insert-agent", agent })));
    for (const name of ["a1", "a2", "a3"]) {
      await send("POST", "/v1/agents", { body: { name } }, true);
    }
  });

  it("reaches those by name and id, and is told nothing of the others", async () => {
    const { token } = await makeKey({ agents: ["a1", two.id] });
    const asked = async (ref: string): Promise<unknown> => {
      const answer = await send("GET", `/v1/agents/${ref}/report`, { token });
      return answer.status === 200 ? 200 : codeOf(answer);
    };
    expect(await asked("a1")).toBe(200);
    expect(await asked("a2")).toBe(200);
    const refused = await send("GET", "/v1/agents/a3/report", { token });
    const missing = await send("GET", "/v1/agents/a4/report", { token });
    expect(refused.status).toBe(404);
    expect(refused.text.replaceAll("a3", "a4")).toBe(missing.text);
    expect(await asked(three.id)).toBe("agent_not_found");
    // By the id of an agent whose name it has: through the door, whatever the commands know.
    expect((await send("DELETE", `/v1/agents/${three.id}`, { token })).status).toBe(404);
    expect(fake.commands.executed.filter(({ kind }) => kind === "remove")).toEqual([]);
  });

  it("lists and makes those only, and is refused what is not about one of them", async () => {
    const { token } = await makeKey({ agents: ["a1", "a9"] });
    let listed: unknown;
    const list = fake.commands.list.bind(fake.commands);
    fake.commands.list = (query) => {
      listed = query.agents;
      return list(query);
    };
    await send("GET", "/v1/agents", { token });
    expect(listed).toEqual(["a1", "a9"]);
    const created = await send("POST", "/v1/agents", { token, body: { name: "a9" } });
    expect(created.status).toBe(201);
    const other = await send("POST", "/v1/agents", { token, body: { name: "a8" } });
    expect(codeOf(other)).toBe("forbidden");
    const fork = await send("POST", "/v1/agents/a1/fork", { token, body: { names: ["a8"] } });
    expect(codeOf(fork)).toBe("forbidden");
    for (const path of ["/v1/keys", "/v1/doctor", "/v1/metrics"]) {
      expect(codeOf(await send("GET", path, { token })), path).toBe("forbidden");
    }
    expect((await send("GET", "/v1/health", { token })).status).toBe(200);
    expect((await send("GET", "/v1/openapi.json", { token })).status).toBe(200);
  });

  it("sees events of those only", async () => {
    const events: Partial<NewEvent>[] = [one, two, three].map(({ id, name }) => ({
      agent: id,
      name,
      atMs: Date.now(),
    }));
    await fake.state.commit(
      events.map((event) => ({ kind: "append-event", event: sampleEvent(event) })),
    );
    const { token } = await makeKey({ agents: ["a1", two.id] });
    const names = async (query: string): Promise<string[]> => {
      const answer = await send("GET", `/v1/events?follow=false${query}`, { token });
      return (answer.json()["events"] as { name: string }[]).map(({ name }) => name);
    };
    expect(await names("")).toEqual(["a1", "a2"]);
    expect(await names("&agent=a1")).toEqual(["a1"]);
    expect(await names("&agent=a2")).toEqual(["a2"]);
    expect(await names(`&agent=${one.id}`)).toEqual(["a1"]);
    for (const other of ["a3", three.id]) {
      const answer = await send("GET", `/v1/events?follow=false&agent=${other}`, { token });
      expect(codeOf(answer)).toBe("agent_not_found");
    }
  });
});

describe("a key that ends", () => {
  const follow = async (token: string): Promise<IncomingMessage> => {
    const response = await begin("GET", "/v1/events", { token });
    await once(response, "data");
    response.resume();
    return response;
  };
  const cut = (response: IncomingMessage): Promise<unknown> =>
    new Promise((resolve) => {
      response.once("error", resolve);
      response.once("close", resolve);
    });

  it("is refused from then on, and cuts what was opened with it, at once", async () => {
    const { key, token } = await makeKey({ name: "k1", scope: "use" });
    const { token: other } = await makeKey();
    await send("POST", "/v1/agents", { body: { name: "a1" } }, true);
    await send(
      "POST",
      "/v1/agents/a1/exec",
      { body: { argv: ["sh", "-c", "echo; sleep 60"] } },
      true,
    );
    const [stream, kept] = [await follow(token), await follow(other)];
    const keptEnds = cut(kept);
    const output = await begin("GET", "/v1/agents/a1/processes/1/output", { token });
    const socket = new WebSocket(`${url.replace("http", "ws")}/v1/agents/a1/processes/1/attach`, [
      ATTACH_PROTOCOL,
      keyProtocol(token),
    ]);
    await once(socket, "message");
    const begun = Promise.withResolvers<undefined>();
    fake.commands.execute = () => {
      begun.resolve(undefined);
      return new Promise(() => undefined);
    };
    const waiting = expect(begin("POST", "/v1/agents/a1/sleep", { token })).rejects.toThrow();
    await begun.promise;
    output.resume();
    const ends = [cut(stream), cut(output), once(socket, "close"), waiting];
    const revoked = await send("DELETE", "/v1/keys/k1", {}, true);
    expect(revoked.json()).toMatchObject({ id: key.id });
    await Promise.all(ends);
    expect(codeOf(await send("GET", "/v1/agents", { token }))).toBe("unauthenticated");
    expect((await send("GET", "/v1/agents", { token: other })).status).toBe(200);
    kept.destroy();
    await keptEnds;
  });

  it("cuts a request that came while it was looked up", async () => {
    const { key, token } = await makeKey();
    const find = fake.state.key.bind(fake.state);
    const gate = Promise.withResolvers<undefined>();
    const looked = Promise.withResolvers<undefined>();
    (fake.state as { key: typeof find }).key = async (id) => {
      const found = await find(id);
      looked.resolve(undefined);
      await gate.promise;
      return found;
    };
    const asked = expect(begin("GET", "/v1/agents", { token })).rejects.toThrow();
    await looked.promise;
    (fake.state as { key: typeof find }).key = find;
    await send("DELETE", `/v1/keys/${key.id}`, {}, true);
    gate.resolve(undefined);
    await asked;
  });

  it("cuts what was opened with it when its time has come", async () => {
    // On a busy host the time may have come before it is opened.
    const openedInTime = async (ms: number): Promise<[string, IncomingMessage]> => {
      const { token } = await makeKey({ expiresAtMs: Date.now() + ms });
      const stream = await follow(token).catch(() => undefined);
      return stream?.statusCode === 200 ? [token, stream] : openedInTime(2 * ms);
    };
    const [token, stream] = await openedInTime(1500);
    await cut(stream);
    expect(codeOf(await send("GET", "/v1/agents", { token }))).toBe("unauthenticated");
  });
});

describe("keys that are refused", () => {
  it("are logged without the key, and no longer answered when there are too many of an address", async () => {
    const { token } = await makeKey();
    const wrong = `pdk_${"0".repeat(26)}_${"S".repeat(43)}`;
    const codes: unknown[] = [];
    for (let i = 0; i < keyLimits.refusalsMax + 3; i++) {
      codes.push(codeOf(await send("GET", "/v1/agents", { token: wrong })));
    }
    const last = await send("GET", "/v1/agents", { token: wrong });
    expect(codes.slice(0, keyLimits.refusalsMax).every((code) => code === "unauthenticated")).toBe(
      true,
    );
    expect(codes.slice(keyLimits.refusalsMax)).toEqual(["too_many", "too_many", "too_many"]);
    expect(Number(last.headers["retry-after"])).toBeGreaterThan(0);
    expect(logged).toHaveLength(keyLimits.refusalsMax);
    expect(logged[0]).toMatch(
      /^warn A key was refused \{"address":"127\.0\.0\.1","reason":"unknown"\}/,
    );
    expect(logged.join("")).not.toContain("SSS");
    // A key that is right is not held up by whoever guesses beside it.
    expect((await send("GET", "/v1/agents", { token })).status).toBe(200);
    expect(codeOf(await send("GET", "/v1/agents"))).toBe("unauthenticated");
  });
});

describe("a WebSocket", () => {
  it("takes the key as a subprotocol, and is refused without", async () => {
    const { token } = await makeKey({ scope: "use" });
    await send("POST", "/v1/agents", { body: { name: "a1" } }, true);
    await send("POST", "/v1/agents/a1/exec", { body: { argv: ["echo", "hello"] } }, true);
    const path = `${url.replace("http", "ws")}/v1/agents/a1/processes/1/attach`;
    const socket = new WebSocket(path, [ATTACH_PROTOCOL, keyProtocol(token)]);
    const [message] = (await once(socket, "message")) as [Buffer];
    expect(message.toString()).toContain("attached");
    expect(socket.protocol).toBe(ATTACH_PROTOCOL);
    socket.terminate();
    const { token: reader } = await makeKey({ scope: "read" });
    for (const [protocols, status] of [
      [[ATTACH_PROTOCOL], 401],
      [[ATTACH_PROTOCOL, keyProtocol("wrong")], 401],
      [[ATTACH_PROTOCOL, keyProtocol(reader)], 403],
    ] as const) {
      const refused = new WebSocket(path, [...protocols]);
      const [, response] = (await once(refused, "unexpected-response")) as [
        unknown,
        IncomingMessage,
      ];
      expect(response.statusCode).toBe(status);
      refused.on("error", () => undefined);
      refused.terminate();
    }
  });
});

describe("pages of browsers", () => {
  const page = "https://console.example";

  it("may read nothing unless their origin is named, and open no WebSocket", async () => {
    const { token } = await makeKey({ scope: "use" });
    const answer = await send("GET", "/v1/agents", { token, headers: { origin: page } });
    expect(answer.headers["access-control-allow-origin"]).toBeUndefined();
    const asks = { origin: page, "access-control-request-method": "POST" };
    expect((await send("OPTIONS", "/v1/agents", { headers: asks })).status).toBe(401);
    const socket = new WebSocket(
      `${url.replace("http", "ws")}/v1/agents/a1/processes/1/attach`,
      [ATTACH_PROTOCOL, keyProtocol(token)],
      { origin: page },
    );
    const [, response] = (await once(socket, "unexpected-response")) as [unknown, IncomingMessage];
    expect(response.statusCode).toBe(403);
    socket.on("error", () => undefined);
    socket.terminate();
  });

  it("of an origin that is named may ask, and read errors, too", async () => {
    await fake.close();
    await open({ corsOrigins: [page] });
    const { token } = await makeKey({ scope: "use" });
    const asks = {
      origin: page,
      "access-control-request-method": "POST",
      "access-control-request-headers": "authorization, content-type, idempotency-key",
    };
    const preflight = await send("OPTIONS", "/v1/agents/a1/exec", { headers: asks });
    expect(preflight.status).toBe(204);
    expect(preflight.headers).toMatchObject({
      "access-control-allow-origin": page,
      "access-control-allow-methods": "GET, POST, PUT, PATCH, DELETE",
      "access-control-allow-headers": "authorization, content-type, idempotency-key",
    });
    const headers = { origin: page };
    const answer = await send("GET", "/v1/agents", { token, headers });
    expect(answer.headers).toMatchObject({ "access-control-allow-origin": page, vary: "origin" });
    const exposed = String(answer.headers["access-control-expose-headers"]).split(", ");
    for (const read of [
      "content-range",
      "perdure-file-mode",
      "perdure-export-signer",
      "retry-after",
    ]) {
      expect(exposed).toContain(read);
    }
    expect(answer.headers["access-control-allow-credentials"]).toBeUndefined();
    const refused = await send("GET", "/v1/agents", { headers });
    expect(refused.headers["access-control-allow-origin"]).toBe(page);
    for (const origin of ["https://evil.example", "null", `${page}.evil.example`]) {
      const other = await send("GET", "/v1/agents", { token, headers: { origin } });
      expect(other.headers["access-control-allow-origin"], origin).toBeUndefined();
    }
  });
});

describe("listening", () => {
  it("asks after callers that say nothing, so that one whose host is gone is noticed", async () => {
    const { port } = new URL(url);
    const socket = connect(Number(port), "127.0.0.1");
    await once(socket, "connect");
    const hex = Number(port).toString(16).toUpperCase().padStart(4, "0");
    // proc(5): local address, peer, state 01 (established), queues, timer 02 (keepalive).
    const kept = new RegExp(`: 0100007F:${hex} \\S+ 01 \\S+ 02:`);
    await expect.poll(() => readFile("/proc/net/tcp", "latin1")).toMatch(kept);
    socket.destroy();
  });

  it("says so where the port is taken, and leaves no socket behind", async () => {
    const port = Number(new URL(url).port);
    const socketPath = join(folder, "other.sock");
    const opening = openFakeServer(socketPath, folder, { tcp: { ...loopback, port } });
    await expect(opening).rejects.toMatchObject({
      code: "bad_request",
      message: `Cannot listen on 127.0.0.1:${port}: something else does`,
    });
    await expect(begin("GET", "/v1/health", {}, socketPath)).rejects.toThrow();
  });
});
