/** E2B's door without a VM: who is let in, what is refused and how that is said, and whatever else is sent. */
import { once } from "node:events";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { createServer, request as httpRequest } from "node:http";
import type { IncomingHttpHeaders } from "node:http";
import { connect } from "node:net";
import type { AddressInfo, Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { PerdureError, routes } from "@perdure/protocol";
import type { CreatedKey, CreateKeyRequest } from "@perdure/protocol";
import { openFakeSandboxes } from "../../../../../test/contract/api/fake-sandboxes.ts";
import type { FakeSandboxes } from "../../../../../test/contract/api/fake-sandboxes.ts";
import type { ProcessOutput } from "../../core/command.ts";
import { signatureOf } from "./access-token.ts";
import { e2bRoutes } from "./e2b-table.ts";
import type { E2bRoute } from "./e2b-table.ts";

let folder: string;
let fake: FakeSandboxes;
let key: string;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "perdure-e2b-"));
  fake = await openFakeSandboxes(folder);
  key = (await makeKey()).e2bKey;
});
afterEach(async () => {
  await fake.close();
  await rm(folder, { recursive: true });
});

interface Sent {
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Buffer;
  readonly socket?: boolean;
}
interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
  readonly json: () => Record<string, unknown>;
}

function send(method: string, path: string, { headers = {}, body, socket }: Sent = {}) {
  const { hostname, port } = new URL(fake.url);
  const to = socket === true ? { socketPath: fake.socketPath } : { host: hostname, port };
  return new Promise<Answer>((resolve, reject) => {
    const request = httpRequest({ ...to, method, path, headers, agent: false }, (response) => {
      const chunks: Buffer[] = [];
      response.on("data", (chunk: Buffer) => chunks.push(chunk));
      response.once("error", reject);
      response.once("end", () => {
        const text = Buffer.concat(chunks).toString();
        const { statusCode: status = 0, headers: answered } = response;
        const json = () => JSON.parse(text) as Record<string, unknown>;
        resolve({ status, headers: answered, text, json });
      });
    });
    request.once("error", reject);
    request.end(body);
  });
}

async function makeKey(wanted: Partial<CreateKeyRequest> = {}): Promise<CreatedKey> {
  const body = JSON.stringify({
    name: `k${Math.random()}`.replace(".", ""),
    scope: "admin",
    ...wanted,
  });
  const headers = { "content-type": "application/json" };
  const { path } = routes.createKey;
  return (
    await send("POST", path, { headers, body, socket: true })
  ).json() as unknown as CreatedKey;
}

const api = (method: string, path: string, body?: unknown, apiKey = key) =>
  send(method, path, {
    headers: { "x-api-key": apiKey, "content-type": "application/json" },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });

interface Made {
  readonly domain: string;
  readonly trafficAccessToken: string;
  readonly sandboxID: string;
  readonly envdAccessToken: string;
}

async function create(wanted: object = {}): Promise<Made> {
  const answer = await api("POST", "/v2/sandboxes", { templateID: "base", ...wanted });
  expect(answer.status).toBe(201);
  return answer.json() as unknown as Made;
}

const inside = ({ sandboxID, envdAccessToken }: Made, headers: Record<string, string> = {}) => ({
  "e2b-sandbox-id": sandboxID,
  "e2b-sandbox-port": "49983",
  "x-access-token": envdAccessToken,
  ...headers,
});

const call = (made: Made, method: string, message: object) =>
  send("POST", `/${method}`, {
    headers: inside(made, { "content-type": "application/json" }),
    body: JSON.stringify(message),
  });

describe("a key", () => {
  const closed = Object.values<E2bRoute>(e2bRoutes).filter(({ path }) => path !== "/health");
  it.each(closed)("is needed for $method $path", async ({ method, path, scope }) => {
    const to = path.replace(/:[a-zA-Z]+/, "01aaaaaaaaaaaaaaaaaaaaaaaa");
    const wrong: Record<string, string>[] = [{ "x-api-key": "e2b_00" }, { "x-api-key": "no" }];
    for (const headers of [{}, ...wrong]) {
      const answer = await send(method, to, { headers });
      expect(answer.status).toBe(401);
      expect(answer.json()).toEqual({ code: 401, message: expect.any(String) as string });
    }
    if (scope !== "admin" && scope !== "use") return;
    const { e2bKey } = await makeKey({ scope: "read" });
    const answer = await api(method, to, undefined, e2bKey);
    expect(answer.status).toBe(403);
    expect(answer.json()).toMatchObject({ code: 403 });
  });

  it("opens our own API, too, and ours E2B's", async () => {
    const { token, e2bKey } = await makeKey();
    expect(e2bKey).toMatch(/^e2b_[0-9a-f]+$/);
    expect((await api("GET", "/v1/agents", undefined, e2bKey)).status).toBe(200);
    const headers = { authorization: `Bearer ${token}` };
    expect((await send("GET", "/v2/sandboxes", { headers })).status).toBe(200);
  });

  it("that may only look is told no access token", async () => {
    const { sandboxID } = await create();
    const { e2bKey } = await makeKey({ scope: "read" });
    const looked = await api("GET", `/sandboxes/${sandboxID}`, undefined, e2bKey);
    expect(looked.status).toBe(200);
    expect(looked.text).not.toContain("oken");
    expect((await api("GET", `/sandboxes/${sandboxID}`)).text).toContain("envdAccessToken");
  });

  it("that is limited to an agent shows no other, and makes none", async () => {
    const [mine, other] = [await create(), await create()];
    const { e2bKey } = await makeKey({ agents: [`ag_${mine.sandboxID}`] });
    const listed = await api("GET", "/v2/sandboxes", undefined, e2bKey);
    expect(JSON.parse(listed.text)).toMatchObject([{ sandboxID: mine.sandboxID }]);
    expect((await api("GET", `/sandboxes/${mine.sandboxID}`, undefined, e2bKey)).status).toBe(200);
    expect((await api("GET", `/sandboxes/${other.sandboxID}`, undefined, e2bKey)).status).toBe(404);
    expect((await api("DELETE", `/sandboxes/${other.sandboxID}`, undefined, e2bKey)).status).toBe(
      404,
    );
    const refused = await api("POST", "/v2/sandboxes", { templateID: "base" }, e2bKey);
    expect(refused.status).toBe(403);
  });
});

describe("the API", () => {
  it.each(["e2b", "e2b-2.50"])("says something of every route that %s knows", async (entry) => {
    const url = new URL("index.d.ts", import.meta.resolve(entry));
    const [, paths = ""] =
      /^interface paths \{\n(.*?)^\}/ms.exec(await readFile(url, "utf8")) ?? [];
    const known = new Set(
      Object.values<E2bRoute>(e2bRoutes).map(({ method, path }) => `${method} ${path}`),
    );
    const missing: string[] = [];
    let path = "";
    let count = 0;
    for (const line of paths.split("\n")) {
      path = /^ {2}"(.*)": \{/.exec(line)?.[1]?.replace(/\{(\w+)\}/g, ":$1") ?? path;
      const method = /^ {4}(get|put|post|delete|patch): \{/.exec(line)?.[1]?.toUpperCase();
      if (method === undefined) continue;
      count++;
      if (!known.has(`${method} ${path}`)) missing.push(`${method} ${path}`);
    }
    expect(count).toBeGreaterThan(40);
    expect(missing).toEqual([]);
  });

  it("answers what it has not with 501 and what it does, and 404 to what is not there", async () => {
    for (const { method, path, scope } of Object.values<E2bRoute>(e2bRoutes)) {
      if (scope !== null) continue;
      const answer = await api(method, path.replace(/:[a-zA-Z]+/, "x"));
      expect(answer.json()).toEqual({
        code: 501,
        message: expect.stringMatching(/not supported/) as string,
      });
    }
    for (const path of [
      "/sandboxes/nobody",
      "/sandboxes/01aaaaaaaaaaaaaaaaaaaaaaaa",
      "/sandboxes/x/else",
    ]) {
      expect((await api("GET", path)).json()).toMatchObject({ code: 404 });
    }
    expect((await api("DELETE", "/templates/debian")).json()).toMatchObject({ code: 404 });
    expect((await api("GET", "/templates/aliases/none")).json()).toMatchObject({ code: 404 });
  });

  it("makes nothing of a body that is not one", async () => {
    const bad = [
      {},
      { templateID: 1 },
      { templateID: "base", timeout: -1 },
      { templateID: "base", timeout: 1e12 },
      { templateID: "base", metadata: { a: 1 } },
      { templateID: "base", envVars: { "a=b": "" } },
      { templateID: "base", network: { allowOut: ["no name!"] } },
    ];
    for (const body of bad) {
      expect((await api("POST", "/v2/sandboxes", body)).json()).toMatchObject({ code: 400 });
    }
    const refused = [
      { mcp: {} },
      { volumeMounts: [{ name: "v", path: "/v" }] },
      { network: { rules: { "api.example.com": [{ transform: { headers: { a: "b" } } }] } } },
      { network: { egressProxy: { url: "http://proxy.example" } } },
      { autoPauseMemory: false },
    ];
    for (const body of refused) {
      const answer = await api("POST", "/v2/sandboxes", { templateID: "base", ...body });
      expect(answer.json()).toMatchObject({ code: 501 });
    }
    const headers = { "x-api-key": key, "content-type": "application/json" };
    expect((await send("POST", "/sandboxes", { headers, body: "{" })).json()).toMatchObject({
      code: 400,
    });
    expect(fake.commands.executed.filter(({ kind }) => kind === "create")).toEqual([]);
  });

  it("opens the way out as far as it is asked to, and no further", async () => {
    const network = { allowOut: ["pypi.org", "*.Example.com"], denyOut: ["0.0.0.0/0"] };
    const { sandboxID } = await create({ network });
    const egress = async () => {
      const agent = String(
        fake.commands.executed.find(({ kind }) => kind === "create")?.["name" as never],
      );
      return fake.commands.egress({ tenant: "default", agent });
    };
    expect(await egress()).toMatchObject({
      otherwise: "deny",
      rules: [
        { action: "allow", to: "pypi.org" },
        { action: "allow", to: "*.example.com" },
        { action: "deny", to: "0.0.0.0/0" },
      ],
    });
    const shown = async () => (await api("GET", `/sandboxes/${sandboxID}`)).json() as object;
    expect(await shown()).toMatchObject({
      allowInternetAccess: false,
      network: { allowOut: ["pypi.org", "*.example.com"], denyOut: ["0.0.0.0/0"] },
    });
    const path = `/sandboxes/${sandboxID}/network`;
    expect((await api("PUT", path, { allow_internet_access: true })).status).toBe(204);
    expect(await egress()).toMatchObject({ rules: [], otherwise: "allow" });
    expect((await api("PUT", path, { denyOut: ["8.8.8.8"] })).status).toBe(204);
    expect(await egress()).toMatchObject({ otherwise: "allow" });
    expect(await shown()).toMatchObject({ allowInternetAccess: true, network: { allowOut: [] } });
    expect((await api("PUT", path, { rules: { "a.example": [{}] } })).json()).toMatchObject({
      code: 501,
    });
  });

  it.each([
    ["/v2/sandboxes", {}, "deny"],
    ["/v2/sandboxes", { allow_internet_access: true }, "allow"],
    ["/v2/sandboxes", { allow_internet_access: false }, "deny"],
    // Older clients send it whether they were asked to or not.
    ["/sandboxes", { allow_internet_access: true }, "deny"],
    ["/sandboxes", { network: { allow_internet_access: true } }, "allow"],
  ])("%s with %j: what nothing was said of is %s", async (path, body, otherwise) => {
    await api("POST", path, { templateID: "base", ...body });
    expect(fake.commands.executed.at(-1)).toMatchObject({ egress: { otherwise } });
  });

  it("says 409 of a pause that was one already, and 503 where a call came first", async () => {
    const { sandboxID } = await create();
    expect((await api("POST", `/sandboxes/${sandboxID}/pause`)).status).toBe(204);
    expect((await api("POST", `/sandboxes/${sandboxID}/pause`)).json()).toMatchObject({
      code: 409,
    });
    expect((await api("POST", `/v2/sandboxes/${sandboxID}/connect`)).status).toBe(201);
    expect((await api("POST", `/v2/sandboxes/${sandboxID}/connect`)).status).toBe(200);
    expect((await api("POST", `/sandboxes/${sandboxID}/resume`, {})).status).toBe(409);
    fake.commands.failNext(new PerdureError("sleep_cancelled", "A call came first"));
    expect((await api("POST", `/sandboxes/${sandboxID}/pause`)).json()).toMatchObject({
      code: 503,
    });
  });
});

describe("what older clients ask for", () => {
  it("is answered by the same: lists of what runs, resumes, refreshes, metrics of several, names", async () => {
    const [one, two] = [await create({ metadata: { n: "1" } }), await create()];
    await api("POST", `/sandboxes/${two.sandboxID}/pause`, {});
    const ids = async (path: string) =>
      (JSON.parse((await api("GET", path)).text) as Made[]).map(({ sandboxID }) => sandboxID);
    expect(await ids("/sandboxes")).toEqual([one.sandboxID]);
    expect(await ids("/sandboxes?metadata=n%3D2")).toEqual([]);
    expect(await ids("/v2/sandboxes")).toEqual([two.sandboxID, one.sandboxID]);
    expect(await ids("/v2/sandboxes?template=base&order=asc")).toHaveLength(2);
    expect(await ids("/v2/sandboxes?template=other")).toEqual([]);
    expect(await ids("/v2/sandboxes?startedAfter=2100-01-01T00:00:00Z")).toEqual([]);
    expect((await api("GET", "/v2/sandboxes?nextToken=none")).json()).toMatchObject({ code: 400 });
    expect((await api("GET", "/v2/sandboxes?state=else")).json()).toMatchObject({ code: 400 });

    const both = `${one.sandboxID},${two.sandboxID},nobody`;
    const metrics = await api("GET", `/sandboxes/metrics?sandbox_ids=${both}`);
    expect(Object.keys(metrics.json()["sandboxes"] as object)).toEqual([one.sandboxID]);
    expect((await api("POST", `/sandboxes/${two.sandboxID}/resume`, { timeout: 60 })).status).toBe(
      201,
    );
    const longer = { duration: 7200 };
    expect((await api("POST", `/sandboxes/${one.sandboxID}/refreshes`, longer)).status).toBe(204);
    expect(fake.commands.executed.at(-1)).toMatchObject({
      kind: "configure",
      end: { afterMs: 7_200_000, extend: true },
    });
    const alias = await api("GET", "/templates/aliases/base");
    expect(alias.json()).toEqual({ templateID: "debian", public: false });
    const logs = await api("GET", `/sandboxes/${one.sandboxID}/logs`);
    expect(logs.json()).toEqual({ logs: [], logEntries: [] });
  });

  it("is a snapshot that another sandbox is made of, and is dropped", async () => {
    const { sandboxID } = await create();
    const made = await api("POST", `/sandboxes/${sandboxID}/snapshots`, { name: "first:default" });
    expect(made.json()).toMatchObject({ names: ["first"] });
    const { snapshotID } = made.json() as { snapshotID: string };
    const bad = await api("POST", `/sandboxes/${sandboxID}/snapshots`, { name: "Not a label" });
    expect(bad.json()).toMatchObject({ code: 400 });
    const listed = async (query: string) =>
      JSON.parse((await api("GET", `/snapshots${query}`)).text) as object[];
    expect(await listed("")).toEqual([{ snapshotID, names: ["first"] }]);
    expect(await listed("?name=other")).toEqual([]);
    expect(await listed("?sandboxID=nobody")).toEqual([]);
    const other = await create({ templateID: `${snapshotID}:default` });
    expect(other.sandboxID).not.toBe(sandboxID);
    const unknown = { templateID: "01aaaaaaaaaaaaaaaaaaaaaaaa" };
    expect((await api("POST", "/sandboxes", unknown)).json()).toMatchObject({ code: 404 });
    expect((await api("DELETE", `/templates/${snapshotID}`)).status).toBe(204);
    expect((await api("DELETE", `/templates/${snapshotID}`)).json()).toMatchObject({ code: 404 });
  });
});

describe("a sandbox", () => {
  it("is entered by its own access token, or a path signed with it that has not ended", async () => {
    const [mine, other] = [await create(), await create()];
    const health = (headers: Record<string, string>) => send("GET", "/health", { headers });
    expect((await health(inside(mine))).status).toBe(204);
    const host = `49983-${mine.sandboxID}.localhost:1`;
    const byHost = { host, "x-access-token": mine.envdAccessToken };
    expect((await health(byHost)).status).toBe(204);
    const wrong = ["", other.envdAccessToken, key];
    for (const token of wrong) {
      const headers: Record<string, string> = token === "" ? {} : { "x-access-token": token };
      const answer = await health({ "e2b-sandbox-id": mine.sandboxID, ...headers });
      expect(answer.json()).toMatchObject({ code: 401 });
    }
    const path = "/home/user/f";
    const uploaded = await send("POST", `/files?path=${path}`, {
      headers: inside(mine),
      body: "x",
    });
    expect(uploaded.status).toBe(200);
    const get = (signed: { operation?: "read" | "write"; user?: string; end?: number | null }) => {
      const { operation = "read", user = "", end = null } = signed;
      const expiration = end === null ? null : String(end);
      const made = { path, operation, user, expiration };
      const query = new URLSearchParams({
        path,
        signature: signatureOf(made, mine.envdAccessToken),
      });
      if (expiration !== null) query.set("signature_expiration", expiration);
      return [
        `/files?${query.toString()}`,
        { headers: { "e2b-sandbox-id": mine.sandboxID } },
      ] as const;
    };
    const nowS = Math.floor(Date.now() / 1000);
    for (const headers of [{}, { headers: { "e2b-sandbox-id": mine.sandboxID } }]) {
      expect((await send("GET", get({})[0], headers)).text).toBe("x");
      expect((await send("GET", get({ end: nowS + 600 })[0], headers)).text).toBe("x");
      for (const bad of [{ operation: "write" }, { user: "root" }, { end: nowS - 1 }] as const) {
        expect((await send("GET", get(bad)[0], headers)).status).toBe(401);
      }
    }
    const moved = `${get({ end: nowS - 1 })[0]}0`;
    expect((await send("GET", moved, get({})[1])).status).toBe(401);
    const elsewhere = { headers: { "e2b-sandbox-id": other.sandboxID } };
    expect((await send("GET", get({})[0], elsewhere)).status).toBe(401);
  });

  it("that is not there, was killed, or has no such port is 502 in the proxy's form", async () => {
    const made = await create();
    for (const id of ["nobody", "01aaaaaaaaaaaaaaaaaaaaaaaa", `${made.sandboxID}x`]) {
      const answer = await send("GET", "/health", { headers: inside({ ...made, sandboxID: id }) });
      expect(answer.json()).toEqual({
        message: "The sandbox was not found",
        sandboxId: id,
        code: 502,
      });
    }
    expect((await api("DELETE", `/sandboxes/${made.sandboxID}`)).status).toBe(204);
    expect((await send("GET", "/health", { headers: inside(made) })).status).toBe(502);
    const port = { ...inside(made), "e2b-sandbox-port": "3000" };
    expect((await send("GET", "/", { headers: port })).json()).toMatchObject({
      code: 502,
      port: 3000,
    });
  });

  it("that is paused is woken by traffic where its owner wants that, and else as one that is not there", async () => {
    const quiet = await create();
    const keen = await create({ autoPause: true, autoResume: { enabled: true } });
    for (const { sandboxID } of [quiet, keen]) {
      expect((await api("POST", `/sandboxes/${sandboxID}/pause`)).status).toBe(204);
    }
    expect((await send("GET", "/health", { headers: inside(quiet) })).status).toBe(502);
    expect((await call(quiet, "process.Process/List", {})).status).toBe(502);
    expect((await send("GET", "/health", { headers: inside(keen) })).status).toBe(204);
    const detail = await api("GET", `/sandboxes/${keen.sandboxID}`);
    expect(detail.json()).toMatchObject({
      state: "running",
      lifecycle: { onTimeout: "pause", autoResume: true },
    });
  });
});

describe("a port of a sandbox", () => {
  const program = createServer((request, response) => {
    response.end(JSON.stringify({ url: request.url, headers: request.headers }));
  });
  let port: string;

  beforeAll(async () => {
    program.listen(0, "127.0.0.1");
    await once(program, "listening");
    port = String((program.address() as AddressInfo).port);
  });
  afterAll(() => void program.close());

  const visit = ({ sandboxID }: Made, headers: Record<string, string> = {}) =>
    send("GET", "/page", {
      headers: { "e2b-sandbox-id": sandboxID, "e2b-sandbox-port": port, ...headers },
    });

  it("is everybody's, by its host and by headers, unless its owner wants it otherwise", async () => {
    const made = await create();
    const detail = await api("GET", `/sandboxes/${made.sandboxID}`);
    expect(made.domain).toBe(`localhost:${new URL(fake.url).port}`);
    expect(detail.json()).toMatchObject({
      domain: made.domain,
      network: { allowPublicTraffic: true },
    });
    expect((await visit(made)).json()).toMatchObject({ url: "/page" });
    const byHost = { headers: { host: `${port}-${made.sandboxID}.${made.domain}` } };
    expect((await send("GET", "/page", byHost)).json()).toMatchObject({ url: "/page" });

    const closed = await create({ network: { allowPublicTraffic: false } });
    const refused = await visit(closed);
    expect([refused.status, refused.json()]).toMatchObject([
      401,
      { code: 401, sandboxId: closed.sandboxID, port: Number(port) },
    ]);
    const token = closed.trafficAccessToken;
    const wrong = [made.trafficAccessToken, closed.envdAccessToken, "", key];
    for (const sent of wrong) {
      expect((await visit(closed, { "e2b-traffic-access-token": sent })).status).toBe(401);
    }
    const seen = await visit(closed, { "e2b-traffic-access-token": token });
    expect(seen.status).toBe(200);
    expect(seen.text).not.toContain(token);
    const hosted = { host: `${port}-${closed.sandboxID}.${closed.domain}` };
    expect((await send("GET", "/page", { headers: hosted })).status).toBe(401);
    const shown = { headers: { ...hosted, "e2b-traffic-access-token": token } };
    expect((await send("GET", "/page", shown)).status).toBe(200);

    const { sandbox } = (
      JSON.parse((await api("POST", `/sandboxes/${closed.sandboxID}/fork`, {})).text) as {
        sandbox: Made;
      }[]
    )[0] as { sandbox: Made };
    expect((await visit(sandbox)).status).toBe(401);
    expect((await visit(sandbox, { "e2b-traffic-access-token": token })).status).toBe(401);
  });

  it("is private where an agent was made by our own API", async () => {
    const body = JSON.stringify({ name: "own" });
    const headers = { "content-type": "application/json" };
    await send("POST", "/v1/agents", { headers, body, socket: true });
    const view = await send("GET", "/v1/agents/own", { socket: true });
    const { id, portsPublic } = view.json() as { id: string; portsPublic: boolean };
    expect(portsPublic).toBe(false);
    const made = { sandboxID: id.slice("ag_".length) } as Made;
    expect((await visit(made)).status).toBe(401);
  });

  it("that is not reached is 502 in the proxy's form, and a paused sandbox stays asleep", async () => {
    const made = await create();
    const gone = { headers: { "e2b-sandbox-id": "nobody", "e2b-sandbox-port": port } };
    expect((await send("GET", "/", gone)).json()).toEqual({
      ...{ message: "The sandbox was not found", sandboxId: "nobody" },
      ...{ port: Number(port), code: 502 },
    });
    for (const sent of ["0", "70000", "x"]) {
      const answer = await visit(made, { "e2b-sandbox-port": sent });
      expect(answer.json()).toMatchObject({ code: 502, port: 0, sandboxId: made.sandboxID });
    }
    expect((await visit(made, { "e2b-sandbox-port": "1" })).json()).toEqual({
      message: "The sandbox is running but port is not open",
      ...{ sandboxId: made.sandboxID, port: 1, code: 502 },
    });
    expect((await api("POST", `/sandboxes/${made.sandboxID}/pause`)).status).toBe(204);
    expect((await visit(made)).json()).toEqual({
      message: "The sandbox is paused",
      ...{ sandboxId: made.sandboxID, port: Number(port), code: 502 },
    });
    const byHost = { host: `${port}-${made.sandboxID}.${made.domain}` };
    expect((await send("GET", "/", { headers: byHost })).json()).toMatchObject({
      code: "agent_state",
    });
    expect((await api("GET", `/sandboxes/${made.sandboxID}`)).json()).toMatchObject({
      state: "paused",
    });
    const keen = await create({ autoResume: { enabled: true } });
    expect((await api("POST", `/sandboxes/${keen.sandboxID}/pause`)).status).toBe(204);
    expect((await visit(keen)).status).toBe(200);
    expect((await api("GET", `/sandboxes/${keen.sandboxID}`)).json()).toMatchObject({
      state: "running",
    });
  });

  it("takes a WebSocket by headers; what serves none answers as without the wish", async () => {
    const sockets = new WebSocketServer({ port: 0, host: "127.0.0.1" });
    await once(sockets, "listening");
    sockets.on("connection", (peer) => peer.send("welcome"));
    const made = await create();
    const url = `ws${fake.url.slice("http".length)}/x`;
    const named = { "e2b-sandbox-id": made.sandboxID };
    const own = String((sockets.address() as AddressInfo).port);
    const client = new WebSocket(url, { headers: { ...named, "e2b-sandbox-port": own } });
    const [welcome] = (await once(client, "message")) as [Buffer];
    expect(welcome.toString()).toBe("welcome");
    client.close();
    await once(client, "close");
    for (const [headers, status] of [
      [{ ...named, "e2b-sandbox-port": "1" }, 502],
      [named, 401],
      [{ host: "api.localhost" }, 401],
      [{ host: "api.localhost", "x-api-key": key }, 404],
    ] as const) {
      const refused = new WebSocket(url, { headers });
      const [error] = (await once(refused, "error")) as [Error];
      expect(error.message).toContain(String(status));
    }
    await new Promise((closed) => sockets.close(closed));
  });
});

describe("the services", () => {
  it("say what is wrong in Connect's codes", async () => {
    const made = await create();
    const code = async (method: string, message: object) =>
      (await call(made, method, message)).json()["code"];
    expect(await code("process.Process/SendSignal", { process: { pid: 4711 } })).toBe("not_found");
    expect(await code("process.Process/SendInput", { process: { tag: "x" } })).toBe("not_found");
    expect(await code("filesystem.Filesystem/Stat", { path: "/none" })).toBe("not_found");
    expect(await code("filesystem.Filesystem/Stat", { path: "~else/x" })).toBe("invalid_argument");
    expect(await code("filesystem.Filesystem/Stat", { path: "x".repeat(5000) })).toBe(
      "invalid_argument",
    );
    for (const [method, message] of [
      ["Remove", { path: "" }],
      ["Move", { source: "", destination: "x" }],
      ["Move", { source: "x", destination: "" }],
    ] as const) {
      expect(await code(`filesystem.Filesystem/${method}`, message)).toBe("invalid_argument");
    }
    expect(await code("filesystem.Filesystem/GetWatcherEvents", { watcherId: "x" })).toBe(
      "not_found",
    );
    expect(await code("filesystem.Filesystem/Stat", { path: { not: "text" } })).toBe(
      "invalid_argument",
    );
    const unknown = await call(made, "filesystem.Filesystem/Else", {});
    expect(unknown.status).toBe(404);
    const media = { headers: inside(made, { "content-type": "text/plain" }), body: "x" };
    expect((await send("POST", "/filesystem.Filesystem/Stat", media)).status).toBe(415);
    const large = { path: "x".repeat(5 * 1024 * 1024) };
    expect(await code("filesystem.Filesystem/Stat", large)).toBe("resource_exhausted");
    const headers = inside(made, {
      "content-type": "application/json",
      authorization: `Basic ${Buffer.from("nobody-here:").toString("base64")}`,
    });
    const body = JSON.stringify({ path: "x" });
    const asNobody = await send("POST", "/filesystem.Filesystem/Stat", { headers, body });
    expect(asNobody.json()).toMatchObject({ code: "unauthenticated" });
  });

  it("list what is there of a deep folder, though some of it goes meanwhile", async () => {
    const made = await create();
    for (const path of ["d/goes", "d/stays/below"]) {
      await call(made, "filesystem.Filesystem/MakeDir", { path });
    }
    const whole = { ...fake.commands };
    fake.commands.listFolder = (target) =>
      target.path.endsWith("/goes")
        ? Promise.reject(new PerdureError("path_not_found", "It is gone"))
        : whole.listFolder(target);
    const answer = await call(made, "filesystem.Filesystem/ListDir", { path: "d", depth: 9 });
    const { entries } = answer.json() as unknown as { entries: { name: string }[] };
    expect(entries.map(({ name }) => name)).toEqual(["goes", "stays", "below"]);
    fake.commands.listFolder = () =>
      Promise.reject(new PerdureError("path_not_found", "It is gone"));
    const gone = await call(made, "filesystem.Filesystem/ListDir", { path: "d", depth: 9 });
    expect(gone.json()).toMatchObject({ code: "not_found" });
  });

  it("say so of a guest that never answers, at the caller's own deadline or the daemon's", async () => {
    const made = await create();
    const late = (method: string, type: string) =>
      send("POST", `/${method}`, {
        headers: inside(made, { "content-type": type, "connect-timeout-ms": "200" }),
        body: type.includes("connect") ? Buffer.from(framed(Buffer.from("{}"))) : "{}",
      });
    await send("POST", "/files?path=f", { headers: inside(made), body: "" });
    const never = () => new Promise<never>(() => undefined);
    fake.commands.processes = never;
    fake.commands.listFolder = never;
    fake.commands.watch = never;
    const unary = await late("process.Process/List", "application/json");
    expect([unary.status, unary.json()]).toMatchObject([504, { code: "deadline_exceeded" }]);
    const stream = await late("filesystem.Filesystem/WatchDir", "application/connect+json");
    expect(stream.text).toContain('"code":"deadline_exceeded"');
    const timeout = new PerdureError("guest_timeout", "The guest did not answer within 60 s");
    fake.commands.processes = () => Promise.reject(timeout);
    const answer = await call(made, "process.Process/List", {});
    expect(answer.json()).toMatchObject({ code: "deadline_exceeded" });
    fake.commands.stat = () => Promise.reject(timeout);
    fake.commands.readFile = () => Promise.reject(timeout);
    const file = await send("GET", "/files?path=/x", { headers: inside(made) });
    expect([file.status, file.json()]).toMatchObject([504, { code: 504 }]);
  });

  it("end a stream whose frames are none, are cut, or are too large, and go on", async () => {
    const made = await create();
    const frame = (length: number, text: string, flags = 0): Buffer => {
      const head = Buffer.alloc(5);
      head.writeUInt8(flags);
      head.writeUInt32BE(length, 1);
      return Buffer.concat([head, Buffer.from(text)]);
    };
    const start = JSON.stringify({ process: { cmd: "/bin/echo", args: ["hi"] } });
    const whole = frame(Buffer.byteLength(start), start);
    const stream = (body: Buffer) =>
      send("POST", "/process.Process/Start", {
        headers: inside(made, { "content-type": "application/connect+json" }),
        body,
      });
    expect((await stream(whole)).text).toContain("exit status 0");
    const bad = [
      Buffer.alloc(0),
      Buffer.from("no frame"),
      whole.subarray(0, 3),
      whole.subarray(0, -1),
      frame(3, "{{{"),
      frame(2 ** 32 - 1, "{}"),
      frame(5 * 1024 * 1024, "{}"),
      frame(2, "{}", 1),
      frame(2, "{}", 0xff),
      Buffer.concat([whole, whole]),
      frame(2, "{}"),
    ];
    for (const body of bad) {
      const answer = await stream(body);
      expect(answer.text).toMatch(/"error":\{"code":"/);
      expect(answer.text).not.toContain("exit status");
    }
    expect((await stream(whole)).text).toContain("exit status 0");
  });

  it("take whole files only, and leave nothing of others", async () => {
    const made = await create();
    const form = (text: string) =>
      send("POST", "/files", {
        headers: inside(made, { "content-type": "multipart/form-data; boundary=b" }),
        body: text,
      });
    const part = (name: string, text: string) =>
      `--b\r\ncontent-disposition: form-data; name="file"; filename="${name}"\r\n\r\n${text}\r\n`;
    const two = await form(`${part("/tmp/one", "1")}${part("two", "22")}--b--\r\n`);
    expect(JSON.parse(two.text)).toEqual([
      { name: "one", type: "file", path: "/tmp/one" },
      { name: "two", type: "file", path: "/home/user/two" },
    ]);
    for (const bad of [
      "",
      "no form",
      part("cut", "cut"),
      "--b--\r\n",
      part("cut", "").slice(0, 30),
    ]) {
      expect((await form(bad)).status).toBe(400);
    }
    const headers = inside(made, { "content-encoding": "gzip" });
    const gzip = await send("POST", "/files?path=bad", { headers, body: "no gzip" });
    expect(gzip.status).toBe(400);
    const encoded = inside(made, { "content-encoding": "br" });
    expect((await send("POST", "/files?path=bad", { headers: encoded, body: "x" })).status).toBe(
      400,
    );
    const marks = ["\u00fc", "x".repeat(4_000)];
    for (const mark of marks) {
      const marked = { headers: inside(made, { "x-metadata-a": mark }), body: "x" };
      expect((await send("POST", "/files?path=bad", marked)).status).toBe(400);
    }
    for (const name of ["cut", "bad"]) {
      const answer = await send("GET", `/files?path=${name}`, { headers: inside(made) });
      expect(answer.json()).toMatchObject({ code: 404 });
    }
    expect(await readdir(join(folder, "spool"))).toEqual([]);
  });

  it("keep what is said of a file with it, until it is written anew", async () => {
    const made = await create();
    const headers = inside(made, { "X-Metadata-Author": "me", "x-metadata-n": "1 2" });
    const metadata = { author: "me", n: "1 2" };
    const up = await send("POST", "/files?path=f", { headers, body: "x" });
    expect(JSON.parse(up.text)).toMatchObject([{ path: "/home/user/f", metadata }]);
    const stat = async () => (await call(made, "filesystem.Filesystem/Stat", { path: "f" })).json();
    expect(await stat()).toMatchObject({ entry: { metadata } });
    const moved = { source: "f", destination: "g" };
    expect((await call(made, "filesystem.Filesystem/Move", moved)).json()).toMatchObject({
      entry: { metadata },
    });
    await send("POST", "/files?path=f", { headers: inside(made), body: "x" });
    expect((await stat())["entry"] as object).not.toHaveProperty("metadata");
  });

  it("end streams of a daemon that stops, and say so", async () => {
    const made = await create();
    const text = JSON.stringify({ process: { cmd: "/bin/cat" } });
    const { hostname, port } = new URL(fake.url);
    const ended = new Promise<string>((resolve, reject) => {
      const headers = inside(made, { "content-type": "application/connect+json" });
      const path = "/process.Process/Start";
      const to = { host: hostname, port, method: "POST", path, headers };
      const request = httpRequest(to, (response) => {
        let said = "";
        response.on("data", (chunk: Buffer) => {
          if (said === "") void fake.server.close(2_000);
          said += chunk.toString();
        });
        response.once("end", () => resolve(said));
        response.once("error", reject);
      });
      request.once("error", reject);
      request.end(framed(Buffer.from(text)));
    });
    expect(await ended).toMatch(/"code":"unavailable","message":"[^"]*daemon is stopping/);
  });

  it("hold little of what a slow reader has not taken, and nothing once it has gone", async () => {
    const made = await create();
    let pulled = 0;
    let isLeft = false;
    async function* endless(): AsyncGenerator<ProcessOutput> {
      const bytes = Buffer.alloc(64 * 1024);
      try {
        for (let offset = 0; ; offset += bytes.length) {
          await new Promise(setImmediate);
          pulled++;
          yield { type: "output", stream: "stdout", offset, bytes };
        }
      } finally {
        isLeft = true;
      }
    }
    fake.commands.output = () => Promise.resolve(endless());
    const { hostname, port } = new URL(fake.url);
    const headers = inside(made, { "content-type": "application/connect+json" });
    const socket = await new Promise<Socket>((resolve, reject) => {
      const to = { host: hostname, port, method: "POST", path: "/process.Process/Start", headers };
      const request = httpRequest(to, (response) => {
        response.pause();
        resolve(response.socket);
      });
      request.once("error", reject);
      request.end(framed(Buffer.from(JSON.stringify({ process: { cmd: "/bin/cat" } }))));
    });
    // What the kernel holds of a connection is full when nothing more is asked for.
    let before = -1;
    await expect
      .poll(() => [before === pulled, (before = pulled)][0], { interval: 200 })
      .toBe(true);
    expect(pulled * 64).toBeLessThan(64 * 1024);
    expect(isLeft).toBe(false);
    socket.destroy();
    await expect.poll(() => isLeft).toBe(true);
  });

  it("do not keep a file whose sender goes away", async () => {
    const made = await create();
    const { hostname, port } = new URL(fake.url);
    const socket = connect(Number(port), hostname);
    const head = Object.entries(inside(made)).map(([name, value]) => `${name}: ${value}`);
    socket.write(
      [
        "POST /files?path=half HTTP/1.1",
        "host: x",
        ...head,
        "content-length: 100",
        "",
        "half",
      ].join("\r\n"),
    );
    await new Promise((sent) => socket.once("ready", sent));
    socket.destroy();
    const answer = await send("GET", "/files?path=half", { headers: inside(made) });
    expect(answer.status).toBe(404);
  });

  it("answer whatever is sent, and stay healthy", async () => {
    const made = await create();
    const bytes = fc.uint8Array({ maxLength: 300 });
    const paths = ["/process.Process/Start", "/filesystem.Filesystem/WatchDir", "/files?path=x"];
    const media = ["application/connect+json", "application/connect+proto", "application/proto"];
    const drawn = fc.record({
      path: fc.constantFrom(...paths, "/filesystem.Filesystem/Stat"),
      media: fc.constantFrom(...media, "application/json", "multipart/form-data; boundary=b"),
      body: fc.oneof(bytes, bytes.map(framed)),
    });
    await fc.assert(
      fc.asyncProperty(drawn, async ({ path, media: type, body }) => {
        const headers = inside(made, { "content-type": type, "connect-timeout-ms": "500" });
        const { status, text } = await send("POST", path, { headers, body: Buffer.from(body) });
        expect(status).toBeLessThan(501);
        // So the library calls what is no message.
        if (status === 500 && !text.includes("parse binary"))
          throw new Error(`500 ${text} for ${path} ${type} ${Buffer.from(body).toString("hex")}`);
      }),
      { numRuns: 150 },
    );
    expect((await send("GET", "/health", { headers: inside(made) })).status).toBe(204);
  });
});

function framed(message: Uint8Array): Uint8Array {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(message.length, 1);
  return Buffer.concat([head, message]);
}
