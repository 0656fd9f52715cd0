/**
 * Serves one entry of the route table: parses what it says there is, calls the handler, and answers
 * with the entry's status; once, where the request has an idempotency key. `watchTable` holds that what
 * is served and what the table says are the same.
 */
import { createHash } from "node:crypto";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { emptyRequestSchema, idempotencyKeySchema, routes, takesKey } from "@perdure/protocol";
import type { ApiRoute, JsonAnswer } from "@perdure/protocol";
import { z } from "zod";
import { parse } from "./parse.ts";
import type { Principal } from "./principal.ts";
import type { KeyedRequest, RequestKeeper } from "./request-keeper.ts";
import { Upload } from "./upload.ts";

declare module "fastify" {
  interface FastifyContextConfig {
    /** The entry of the route table. */
    readonly entry?: ApiRoute;
  }
  interface FastifyInstance {
    readonly requestKeeper: RequestKeeper;
  }
}

type Parsed<S> = S extends z.ZodType ? z.output<S> : Readonly<Record<string, never>>;
type Schema<R, K extends keyof ApiRoute> = K extends keyof R ? R[K] : undefined;
type BodySchema<R> = R extends { readonly body: { readonly schema: infer S } } ? S : undefined;

/** One request to route `R`, parsed. */
export interface RouteCall<R extends ApiRoute> {
  readonly principal: Principal;
  /** The principal's. */
  readonly tenant: string;
  readonly params: Parsed<Schema<R, "params">>;
  readonly query: Parsed<Schema<R, "query">>;
  readonly headers: Parsed<Schema<R, "headers">>;
  /** Empty where the body is bytes. */
  readonly body: Parsed<BodySchema<R>>;
  /** The body of a route that takes bytes and whose parser left them in the socket. */
  readonly upload: Upload;
  readonly request: FastifyRequest;
  readonly reply: FastifyReply;
}

/** A handler may hand out what it may not change itself. */
type Frozen<T> = unknown extends T
  ? T
  : T extends string | number | boolean | null | undefined
    ? T
    : T extends readonly (infer E)[]
      ? readonly Frozen<E>[]
      : { readonly [K in keyof T]: Frozen<T[K]> };

/** The JSON, or nothing where the table says that there is no body; `reply` where that was sent already. */
type Answered<R extends ApiRoute> = R["answers"] extends readonly []
  ? Promise<void>
  : Promise<Frozen<JsonAnswer<R>> | FastifyReply>;

/** Serves `route`: what `handle` resolves to is the answer. */
export function serve<const R extends ApiRoute>(
  server: FastifyInstance,
  route: R,
  handle: (call: RouteCall<R>) => Answered<R>,
): void {
  const entry: ApiRoute = route;
  const { method, path, status } = entry;
  server.route({
    method,
    url: path,
    config: { entry },
    handler: async (request, reply) => {
      const call = callOf(entry, request, reply);
      const work = async (): Promise<{ status: number; body: string | null } | null> => {
        void reply.code(status);
        const answer = await handle(call as unknown as RouteCall<R>);
        // The connection is no HTTP any more.
        if (status === 101) return null;
        if (answer === reply) return null;
        return { status, body: answer === undefined ? null : JSON.stringify(answer) };
      };
      const keyed = keyedRequest(entry, call);
      const { answer, replayed } =
        keyed === null
          ? { answer: await work(), replayed: false }
          : await server.requestKeeper.run(keyed, work);
      if (answer === null) return reply;
      if (replayed) void reply.header("idempotency-replayed", "true");
      void reply.code(answer.status);
      if (answer.body === null) return reply.send();
      return reply.type("application/json; charset=utf-8").send(answer.body);
    },
  });
}

type AnyCall = Omit<RouteCall<ApiRoute>, "params" | "query" | "headers" | "body"> & {
  readonly params: unknown;
  readonly headers: unknown;
  readonly query: unknown;
  readonly body: unknown;
};

function callOf(entry: ApiRoute, request: FastifyRequest, reply: FastifyReply): AnyCall {
  const { principal } = request;
  const bodySchema = entry.body === undefined ? emptyRequestSchema : entry.body.schema;
  return {
    principal,
    tenant: principal.tenant,
    params: parse(entry.params ?? z.looseObject({}), request.params, "path"),
    query: parse(entry.query ?? emptyRequestSchema, request.query, "query"),
    headers: entry.headers === undefined ? {} : parse(entry.headers, request.headers, "headers"),
    body:
      bodySchema === null
        ? {}
        : parse(bodySchema, request.body === undefined ? {} : request.body, "body"),
    upload: new Upload(request.raw),
    request,
    reply,
  };
}

/** Null where there is no key, or nothing to be done once. */
function keyedRequest(entry: ApiRoute, call: AnyCall): KeyedRequest | null {
  const { request, upload, principal } = call;
  const header = request.headers["idempotency-key"];
  if (header === undefined || !takesKey(entry)) return null;
  const key = parse(idempotencyKeySchema, header, "headers.idempotency-key");
  const isStreamed = entry.body?.schema === null && !Buffer.isBuffer(request.body);
  const head = digestOf(entry, call);
  return {
    principal: principal.id,
    key,
    digest: async () => (isStreamed ? `${head}-${await upload.digest()}` : head),
    digestNow: isStreamed ? null : head,
    again: entry.repeat === "again",
    keepsErrors: !isStreamed,
    keepsAnswer: entry.repeat !== "unfinished",
  };
}

/** Of all that is asked but a body that is streamed. */
function digestOf({ method, path }: ApiRoute, { params, query, body, request }: AnyCall): string {
  const hash = createHash("sha256");
  hash.update(JSON.stringify([method, path, params, query, body], sorted));
  if (Buffer.isBuffer(request.body)) hash.update(request.body);
  return hash.digest("hex");
}

function sorted(_key: string, value: unknown): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).sort(([one], [two]) => (one < two ? -1 : 1)));
}

/** Before the first route: refuses to start a server whose routes are not those of the table. */
export function watchTable(server: FastifyInstance): void {
  const missing = new Set<ApiRoute>(Object.values(routes));
  server.addHook("onRoute", ({ method, url, config }) => {
    const entry = config?.entry;
    if (entry === undefined || !missing.delete(entry)) {
      throw new Error(`${String(method)} ${url} is not in the route table, or is served twice`);
    }
  });
  server.addHook("onReady", (done) => {
    const left = [...missing].map(({ method, path }) => `${method} ${path}`);
    done(left.length === 0 ? undefined : new Error(`Nobody serves ${left.join(", ")}`));
  });
}
