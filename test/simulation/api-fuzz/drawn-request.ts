/** Requests of any kind: as the route table wants them, nearly so, and not at all. */
import fc from "fast-check";
import { routes } from "@perdure/protocol";
import type { ApiRoute } from "@perdure/protocol";
import { schemaOf, valueOf } from "./schema-arbitrary.ts";
import type { Pool, Schema } from "./schema-arbitrary.ts";

/** Stands for the id of an agent that is there when the request is sent. */
export const SOME_AGENT = "some-agent-id";

export interface DrawnRequest {
  readonly method: string;
  /** Path and query. */
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer | null;
  /** `half`: less is sent than is announced. `abort`: who asks goes away. `socket`: a WebSocket. `raw`: no HTTP at all. */
  readonly how: "whole" | "half" | "abort" | "socket" | "raw";
  /** By which door, and who with. */
  readonly door: "socket" | "admin" | "use" | "read" | "limited" | "expired" | "wrong" | "none";
}

const names = ["a1", "a2", "a3", "a4"];
const agent = fc.constantFrom(...names, ...names, SOME_AGENT);
const argv = fc.oneof(
  fc.tuple(fc.constant("count"), fc.constantFrom("1", "7")),
  fc.tuple(fc.constant("wait-for"), fc.constantFrom("100", "5000", "900000")),
  fc.tuple(fc.constantFrom("wait", "spin", "echo", "nothing"), fc.string({ maxLength: 9 })),
);
const pool: Pool = {
  agent,
  name: fc.constantFrom(...names, "b1"),
  names: fc.uniqueArray(fc.constantFrom(...names, "b1", "b2", "b3"), {
    minLength: 1,
    maxLength: 3,
  }),
  agents: fc.option(fc.array(agent, { minLength: 1, maxLength: 3 })),
  image: fc.constantFrom("debian", "debian", "base", "nothing"),
  key: fc.constantFrom("a1", "b1", "nothing"),
  checkpoint: fc.constantFrom("c1", "c2", "c3"),
  process: fc.integer({ min: 1, max: 9 }),
  hold: fc.integer({ min: 1, max: 5 }),
  argv,
  user: fc.constantFrom("user", "root", "nobody-here"),
  path: fc.constantFrom("/", "/tmp/file", "/a/../b", "/home/user/ü \u0001"),
  limit: fc.constantFrom(1, 2, 100, 1000),
  after: fc.constantFrom("0", "1", "9", "a1"),
  offset: fc.constantFrom("0", "1", "99999"),
  count: fc.integer({ min: 0, max: 2 }),
};
// A checkpoint that is named, and one that is meant, are of one pool.
const bodyPools: Readonly<Record<string, Pool>> = {
  checkpoint: { ...pool, name: fc.constantFrom("c1", "c2", "c3") },
};

type Fields = Readonly<Record<string, unknown>>;

function fields(schema: ApiRoute["query"], from: Pool): fc.Arbitrary<Fields> {
  if (schema === undefined) return fc.constant({});
  return valueOf(schemaOf(schema), from) as fc.Arbitrary<Fields>;
}

/** One field is left out, another thing, or one too many. */
function spoilt(drawn: fc.Arbitrary<Fields>): fc.Arbitrary<Fields> {
  const odd = fc.oneof(
    fc.jsonValue({ maxDepth: 2 }),
    fc.constantFrom("", " 1", "1e3", "0x1", "-1", "\0"),
  );
  return fc
    .tuple(drawn, fc.nat(), fc.constantFrom("drop", "replace", "add"), odd, fc.string())
    .map(([value, at, what, other, extra]) => {
      const keys = Object.keys(value);
      const key = keys[at % Math.max(1, keys.length)] ?? extra;
      if (what === "add") return { ...value, [extra]: other };
      const left = Object.fromEntries(Object.entries(value).filter(([each]) => each !== key));
      return what === "drop" ? left : { ...left, [key]: other };
    });
}

const nearly = (drawn: fc.Arbitrary<Fields>): fc.Arbitrary<Fields> =>
  fc.oneof({ weight: 4, arbitrary: drawn }, { weight: 1, arbitrary: spoilt(drawn) });

const textOf = (value: unknown): string =>
  typeof value === "string" || value === undefined ? (value ?? "") : JSON.stringify(value);

function pathOf(path: string): fc.Arbitrary<string> {
  const parts = path.split("/").map((part) => {
    if (!part.startsWith(":")) return fc.constant(part);
    const known = pool[part.slice(1)] ?? fc.string();
    const odd = fc.oneof(fc.string(), fc.constantFrom("..", "%00", "a".repeat(300), "%zz", "ü"));
    return fc.oneof(
      { weight: 12, arbitrary: known.map((value) => encodeURIComponent(textOf(value))) },
      { weight: 1, arbitrary: odd.map(escapedLoosely) },
    );
  });
  return fc.tuple(...parts).map((all) => all.join("/"));
}

/** What Node sends as it is; mostly escaped, and now and then wrongly so. */
function escapedLoosely(text: string): string {
  return text.replace(/[^\x21-\x7e]|[/?#]/g, (each) =>
    encodeURIComponent(each.isWellFormed() ? each : "?"),
  );
}

function queryOf(values: Fields): string {
  const pairs = Object.entries(values).map(([key, value]): [string, string] => [
    key,
    textOf(value),
  ]);
  return pairs.length === 0 ? "" : `?${String(new URLSearchParams(pairs))}`;
}

function bodyOf(operation: string, { body }: ApiRoute): fc.Arbitrary<Buffer | null> {
  const strange = fc.constantFrom(
    ...[
      "",
      "{",
      "null",
      "[]",
      "1",
      '"x"',
      '{"__proto__":{"a":1}}',
      '{"constructor":1}',
      "\ufeff{}",
    ],
    "[".repeat(50_000),
    `{"name":"${"x".repeat(200_000)}"}`,
    `{"name":"${"x".repeat(3_000_000)}"}`,
  );
  const text = fc.oneof(strange, fc.json()).map((each) => Buffer.from(each));
  const noise = fc.uint8Array({ maxLength: 5000 }).map((each) => Buffer.from(each));
  if (body === undefined) {
    return fc.oneof({ weight: 9, arbitrary: fc.constant(null) }, { weight: 1, arbitrary: text });
  }
  if (body.schema === null) return fc.oneof(noise, text);
  const wanted = fields(body.schema as never, bodyPools[operation] ?? pool);
  return fc.oneof(
    { weight: 9, arbitrary: nearly(wanted).map((each) => Buffer.from(JSON.stringify(each))) },
    { weight: 1, arbitrary: fc.oneof(text, noise) },
  );
}

const media = ["application/json", "application/json; charset=utf-8", "application/octet-stream"];
const oddHeaders = fc.record(
  {
    "idempotency-key": fc.constantFrom("k1", "k2", "k3", "", "ü".repeat(3), "x".repeat(300)),
    range: fc.constantFrom("bytes=0-1", "bytes=-1", "bytes=9-1", "lines=1", "bytes=0-1,2-3"),
    "if-range": fc.constant('"x"'),
    "last-event-id": fc.constantFrom("0", "5", "-1", "x", "99999999999999999999"),
    expect: fc.constantFrom("100-continue", "nothing"),
    accept: fc.constantFrom("*/*", "text/html"),
    origin: fc.constantFrom("https://evil.example", "null"),
    upgrade: fc.constantFrom("websocket", "h2c"),
    connection: fc.constantFrom("close", "keep-alive", "upgrade"),
    "content-encoding": fc.constantFrom("gzip", "identity"),
    "perdure-passphrase": fc.constantFrom("cGFzcw==", "!!!!", "", "/w=="),
    "x-padding": fc.constantFrom("y".repeat(1000), "y".repeat(20_000)),
  },
  { requiredKeys: [] },
);
const headers = fc.oneof(
  { weight: 3, arbitrary: fc.constant({}) },
  { weight: 1, arbitrary: oddHeaders },
  { weight: 2, arbitrary: fc.record({ "idempotency-key": fc.stringMatching(/^[a-z]{12}$/) }) },
) as fc.Arbitrary<Record<string, string>>;

const entries = Object.entries<ApiRoute>(routes);

/** How often a route is drawn; those that are not named: once. */
const weights: Readonly<Record<string, number>> = { create: 6, exec: 5, wake: 3, checkpoint: 3 };

const drawnRoutes = entries.map(([operation, route]) => {
  const { method, path, query } = route;
  const methods = fc.constantFrom(
    ...["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "PROPFIND", "QUERY"],
  );
  const json = route.body?.schema == null ? "application/octet-stream" : "application/json";
  const arbitrary = fc.record({
    method: fc.oneof(
      { weight: 19, arbitrary: fc.constant(method as string) },
      { weight: 1, arbitrary: methods },
    ),
    url: fc
      .tuple(pathOf(path), nearly(fields(query, pool)))
      .map(([filled, values]) => filled + queryOf(values)),
    headers: fc
      .tuple(
        headers,
        fc.oneof(
          { weight: 9, arbitrary: fc.constant(json) },
          fc.constantFrom(...media, "text/x;;"),
        ),
      )
      .map(([some, type]) => ({ "content-type": type, ...some })),
    body: bodyOf(operation, route),
    how: fc.oneof(
      { weight: 20, arbitrary: fc.constant("whole" as const) },
      { weight: operation === "attach" ? 20 : 1, arbitrary: fc.constant("socket" as const) },
      fc.constantFrom("half" as const, "abort" as const, "abort" as const),
    ),
    door: fc.oneof(
      { weight: 5, arbitrary: fc.constant<DrawnRequest["door"]>("socket") },
      fc.constantFrom<DrawnRequest["door"][]>(
        "admin",
        "use",
        "read",
        "limited",
        "expired",
        "wrong",
        "none",
      ),
    ),
  });
  return { weight: weights[operation] ?? 1, arbitrary };
});

const noHttp = fc.constantFrom(
  "\r\n\r\n\r\n",
  "GET\r\n\r\n",
  "GET / HTTP/9.9\r\n\r\n",
  "get /v1/agents HTTP/1.1\r\nhost: x\r\n\r\n",
  "GET /v1/agents HTTP/1.1\r\n\r\n",
  "GET /v1/agents HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello",
  "POST /v1/agents HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{}",
  "POST /v1/agents HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
  "GET /v1/health HTTP/1.1\r\nhost: x\r\n\r\nGET /v1/health HTTP/1.1\r\nhost: x\r\n\r\n",
  "GET http://x/v1/health HTTP/1.1\r\nhost: x\r\n\r\n",
  "OPTIONS * HTTP/1.1\r\nhost: x\r\n\r\n",
  "CONNECT x:80 HTTP/1.1\r\nhost: x\r\n\r\n",
  "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
  `GET /${"a".repeat(20_000)} HTTP/1.1\r\nhost: x\r\n\r\n`,
  `GET /v1/agents/${"%41".repeat(3_000)} HTTP/1.1\r\nhost: x\r\n\r\n`,
);
const raw: fc.Arbitrary<DrawnRequest> = fc.record({
  method: fc.constant("-"),
  url: fc.constant("-"),
  headers: fc.constant({}),
  body: fc.oneof(
    noHttp.map((text) => Buffer.from(text)),
    fc.uint8Array({ minLength: 1, maxLength: 500 }).map((each) => Buffer.from(each)),
  ),
  how: fc.constant("raw" as const),
  door: fc.constantFrom("socket" as const, "none" as const),
});

const unknownPath: fc.Arbitrary<string> = fc.oneof(
  fc.webPath().map((path) => path || "/"),
  fc.constantFrom(
    "/",
    "//",
    "/v1",
    "/v1/",
    "/v2/agents",
    "/v1/agents/",
    "/v1/agents//show",
    "/v1/../v1/agents",
  ),
);
const unknown: fc.Arbitrary<DrawnRequest> = fc.record({
  method: fc.constantFrom("GET", "POST", "DELETE", "HEAD"),
  url: unknownPath,
  headers,
  body: fc.constant(null),
  how: fc.constant("whole" as const),
  door: fc.constantFrom("socket" as const, "admin" as const, "none" as const),
});

export const drawnRequest: fc.Arbitrary<DrawnRequest> = fc.oneof(
  ...drawnRoutes,
  { weight: 3, arbitrary: raw },
  { weight: 2, arbitrary: unknown },
);

export type { Schema };
