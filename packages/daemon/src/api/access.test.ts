/** Who may call what over TCP: every route of the table against every kind of caller. */
import { mkdtemp, rm } from "node:fs/promises";
import { request } from "node:http";
import type { IncomingMessage } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { errorTable, makeId, pathNames, pathOf, routes, scopes } from "@perdure/protocol";
import type { ApiRoute, CreatedKey, CreateKeyRequest, ErrorCode } from "@perdure/protocol";
import { violations } from "../../../../test/contract/api/conformance.ts";
import { createFakeCommands } from "../../../../test/contract/api/fake-commands.ts";
import { openFakeServer } from "../../../../test/contract/api/fake-server.ts";
import type { FakeServer } from "../../../../test/contract/api/fake-server.ts";
import { sampleAgent } from "../../../../test/contract/state-store-sample.ts";

let folder: string;
let fake: FakeServer;
/** Calls of what carries requests out. */
let called: string[];
let address = 1;

const mine = sampleAgent("mine");
const other = sampleAgent("other");

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "perdure-access-"));
  called = [];
  const commands = watched("commands", createFakeCommands());
  const tcp = { host: "127.0.0.1", port: 0, tls: null, corsOrigins: [] };
  fake = await openFakeServer(join(folder, "run.sock"), folder, {
    commands,
    tcp,
    wrapImages: (images) => watched("images", images),
    onShutdown: () => called.push("shutdown"),
  });
  await fake.state.commit([mine, other].map((agent) => ({ kind: "insert-agent", agent })));
  // Refusals of an address are limited: each test asks from another one.
  address = (address % 250) + 1;
});
afterEach(async () => {
  await fake.close();
  await rm(folder, { recursive: true });
});

function watched<T extends object>(name: string, subject: T): T {
  return new Proxy(subject, {
    get: (target, property, receiver): unknown => {
      const value: unknown = Reflect.get(target, property, receiver);
      if (typeof value !== "function" || property === "dispose") return value;
      return (...values: unknown[]): unknown => {
        called.push(`${name}.${String(property)}`);
        return (value as (...values: unknown[]) => unknown).apply(target, values);
      };
    },
  });
}

async function makeKey(wanted: Partial<CreateKeyRequest> = {}): Promise<CreatedKey> {
  const name = `k${Math.random().toString(36).slice(2)}`;
  const body = JSON.stringify({ name, scope: "admin", ...wanted });
  const answer = await send(routes.createKey, { body, socket: true });
  expect(answer.status).toBe(201);
  return JSON.parse(answer.text) as CreatedKey;
}

interface Asked {
  readonly token?: string;
  readonly agent?: string;
  readonly body?: string;
  readonly socket?: boolean;
}

/** Of a stream only the head is read; whatever is answered fits the OpenAPI document. */
async function send(route: ApiRoute, { token, agent = "mine", body, socket = false }: Asked) {
  const values = { agent, process: 1, hold: 1, checkpoint: "c1", key: "k1", image: "i1", port: 80 };
  expect(Object.keys(values)).toEqual(expect.arrayContaining([...pathNames(route.path)]));
  const path = pathOf(route, values);
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    const headers = {
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
      ...(body === undefined ? {} : { "content-type": "application/json" }),
    };
    const to = socket
      ? { socketPath: fake.socketPath }
      : { ...hostAndPort(), localAddress: `127.0.0.${address}` };
    const options = { ...to, method: route.method, path, headers, agent: false };
    request(options, resolve).once("error", reject).end(body);
  });
  let text = "";
  const isStream = response.statusCode === 200 && !/json$|json;/.test(typeOf(response));
  if (!isStream) for await (const chunk of response) text += String(chunk);
  response.destroy();
  const { statusCode: status = 0, headers } = response;
  const exchange = { method: route.method, url: path, requestBody: body ?? "", status, headers };
  expect(violations({ ...exchange, body: isStream ? null : text })).toEqual([]);
  return { status, text };
}

const typeOf = ({ headers }: IncomingMessage): string => headers["content-type"] ?? "";

function hostAndPort(): { host: string; port: number } {
  const { hostname, port } = new URL(fake.server.url ?? "");
  return { host: hostname, port: Number(port) };
}

function codeOf({ status, text }: { status: number; text: string }): ErrorCode | null {
  if (status < 400) return null;
  const { code } = JSON.parse(text) as { code: ErrorCode };
  expect(status).toBe(errorTable[code].status);
  return code;
}

const all = Object.entries<ApiRoute>(routes);
const closed = all.filter(([, { scope }]) => scope !== "none");
const ofAgents = closed.filter(([, { path }]) => path.includes(":agent"));
const ofHost = closed.filter(([, { path }]) => !path.includes(":agent"));

describe.each(closed)("%s", (_operation, route) => {
  it("is refused without a key, with one that nobody has, that has expired, or was revoked", async () => {
    const { key, token } = await makeKey();
    const stored = await fake.state.key(key.id);
    if (stored === null) throw new Error("The key is not stored");
    const unknown = `pdk_${makeId("ak", 1, new Uint8Array(10)).slice(3)}_${"A".repeat(43)}`;
    const revoked = await makeKey();
    const ended = await send(routes.revokeKey, { socket: true });
    expect(codeOf(ended)).toBe("key_not_found");
    await fake.state.commit([
      { kind: "delete-key", id: revoked.key.id },
      { kind: "delete-key", id: key.id },
      { kind: "insert-key", key: { ...stored, expiresAtMs: 1 } },
    ]);
    called.length = 0;
    const words = new Set<string>();
    for (const sent of [undefined, unknown, revoked.token, token]) {
      const answer = await send(route, sent === undefined ? {} : { token: sent });
      expect(codeOf(answer)).toBe("unauthenticated");
      if (sent !== undefined) words.add(answer.text);
    }
    expect(words.size).toBe(1);
    expect(called).toEqual([]);
  });

  it("is refused to every scope below its own", async () => {
    const below = scopes.slice(1, scopes.indexOf(route.scope));
    for (const scope of below as readonly ("read" | "use")[]) {
      const { token } = await makeKey({ scope });
      called.length = 0;
      expect(codeOf(await send(route, { token })), scope).toBe("forbidden");
    }
    expect(called).toEqual([]);
  });

  it("is there for its own scope", async () => {
    const { token } = await makeKey({ scope: route.scope as "read" });
    const code = codeOf(await send(route, { token }));
    expect(["unauthenticated", "forbidden"]).not.toContain(code);
  });
});

describe.each(ofAgents)("%s with a key that is limited to some agents", (_operation, route) => {
  it("tells nothing of another agent, and does nothing to it", async () => {
    const { token } = await makeKey({ agents: [mine.id, "later"] });
    called.length = 0;
    const refused = await send(route, { token, agent: "other" });
    expect(codeOf(refused)).toBe("agent_not_found");
    const missing = await send(route, { token, agent: "nobody" });
    expect(refused.text.replaceAll("other", "nobody")).toBe(missing.text);
    expect(codeOf(await send(route, { token, agent: other.id }))).toBe("agent_not_found");
    expect(called).toEqual([]);
    // Past the door: what is asked is parsed, and asked of the commands, which have no such agent.
    const reached = await send(route, { token, agent: "mine" });
    if (codeOf(reached) !== "bad_request") expect(called).not.toEqual([]);
  });
});

/** What these show and make is tested in tcp.test.ts; a new one belongs there. */
const narrowed = ["create", "events", "health", "list", "openapi"];

it("narrows to the agents of a key what is known to", () => {
  const found = all.filter(([, route]) => route.narrowed === true).map(([operation]) => operation);
  expect(found.sort()).toEqual(narrowed);
});

describe.each(ofHost)("%s with a key that is limited to some agents", (operation, route) => {
  it("is refused, unless it narrows what it tells to those", async () => {
    const { token } = await makeKey({ agents: ["mine"] });
    called.length = 0;
    const code = codeOf(await send(route, { token }));
    if (narrowed.includes(operation)) {
      expect(code).not.toBe("forbidden");
      return;
    }
    expect(code).toBe("forbidden");
    expect(called).toEqual([]);
  });
});
