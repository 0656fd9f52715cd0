/**
 * What a `/v1` route is: one entry of the route table says all of it. The daemon serves from the entry,
 * the SDK calls by it, and docs/reference/openapi.json and api.md are generated from it.
 *
 * How to add a route:
 * 1. Put its schemas into a file of protocol/src, and an entry into the file of its area beside this one
 *    (a new area: a new file, spread into `routes` in table.ts). The key is the operation: the verb that
 *    also names the SDK method and, where there is one, the CLI command.
 * 2. Give schemas that are worth a name one in `components` (openapi.ts).
 * 3. Serve it: `serve(server, routes.verb, (call) => …)` in packages/daemon/src/api. The daemon does not
 *    start while an entry is not served, or something is served that has no entry.
 * 4. Call it from the SDK by `routes.verb`, then `node tools/generate-docs.ts`.
 */
import type { z } from "zod";

/** `none`: no key is asked for. Each of the others includes those before it. */
export const scopes = ["none", "read", "use", "admin"] as const;
/** What a caller must be allowed: to look, to use agents (exec, files, sleep, wake), or everything. */
export type Scope = (typeof scopes)[number];

export interface JsonContent<S extends z.ZodType = z.ZodType> {
  readonly media: "application/json";
  readonly schema: S;
}

/** Many values, as they come; `schema` is of one of them. */
export interface StreamContent<S extends z.ZodType = z.ZodType> {
  /** JSON values, one a line; or server-sent events whose `data` is JSON. */
  readonly media: "application/x-ndjson" | "text/event-stream";
  readonly schema: S;
}

export interface BytesContent {
  readonly media: "application/octet-stream";
  readonly schema: null;
}

/** A body in one media type. */
export type Content = JsonContent | StreamContent | BytesContent;

/** One route. Paths are as in `/v1/agents/:agent`. */
export interface ApiRoute {
  readonly method: "DELETE" | "GET" | "PATCH" | "POST" | "PUT";
  readonly path: `/v1/${string}`;
  /** What it does, in one sentence for whoever calls it. */
  readonly summary: string;
  /** Of the path's `:names`; absent where there is none. */
  readonly params?: z.ZodObject;
  /** Absent: there must be no query. */
  readonly query?: z.ZodObject;
  /** Headers of the request that mean something here, by their names in lower case. */
  readonly headers?: z.ZodObject;
  /** Of the request; absent: there is none, or it is an empty JSON object. */
  readonly body?: Content;
  /** Of success. */
  readonly status: 101 | 200 | 201 | 202 | 204;
  /** What success answers, one for each media type; empty: no body. */
  readonly answers: readonly Content[];
  /** A `Range` of bytes may be asked for: then 206 is success too. */
  readonly ranges?: true;
  /** Headers of success, by their names in lower case. */
  readonly answerHeaders?: z.ZodObject;
  /** Whether it changes something: then it takes an `Idempotency-Key`. */
  readonly mutates: boolean;
  /**
   * What a repeat with the same `Idempotency-Key` gets where it mutates. Absent: the answer that is kept.
   * `again`: the same, or it is carried out again where none is: it is idempotent itself. `unfinished`:
   * the answer is not kept (it is a secret or a stream), so a repeat is `idempotency_unfinished`.
   */
  readonly repeat?: "again" | "unfinished";
  readonly scope: Scope;
  /**
   * Without `:agent` in its path, and yet for callers whose key is limited to some agents: what serves it
   * sees to it that it shows and makes no others. Absent: such callers are refused.
   */
  readonly narrowed?: true;
}

/** A JSON body. */
export function json<S extends z.ZodType>(schema: S): JsonContent<S> {
  return { media: "application/json", schema };
}

/** A stream of JSON values, one a line. */
export function lines<S extends z.ZodType>(schema: S): StreamContent<S> {
  return { media: "application/x-ndjson", schema };
}

/** Server-sent events whose `data` is JSON. */
export function serverSentEvents<S extends z.ZodType>(schema: S): StreamContent<S> {
  return { media: "text/event-stream", schema };
}

/** Whether the route takes an `Idempotency-Key`. */
export function takesKey({ mutates, method }: ApiRoute): boolean {
  return mutates && method !== "GET";
}

export const bytes: BytesContent = { media: "application/octet-stream", schema: null };

/** What the JSON of success is, as it is on the wire; never where there is none. */
export type JsonAnswer<R extends ApiRoute> =
  Extract<R["answers"][number], JsonContent> extends JsonContent<infer S> ? z.output<S> : never;

/** The schema of the JSON that success answers. */
export function answerSchema<R extends ApiRoute>(route: R): z.ZodType<JsonAnswer<R>> {
  const found = route.answers.find(({ media }) => media === "application/json")?.schema;
  if (found == null) throw new Error(`${route.method} ${route.path} answers no JSON`);
  return found as z.ZodType<JsonAnswer<R>>;
}

/** The names in `path`, in order. */
export function pathNames(path: string): readonly string[] {
  return [...path.matchAll(/:([a-z]+)/g)].map(([, name = ""]) => name);
}

/** The route's path with its names filled in. */
export function pathOf(
  route: ApiRoute,
  params: Readonly<Record<string, string | number>> = {},
): string {
  return route.path.replace(/:([a-z]+)/g, (_, name: string) => {
    const value = params[name];
    if (value === undefined) throw new Error(`Path ${route.path} needs "${name}"`);
    return encodeURIComponent(value);
  });
}
