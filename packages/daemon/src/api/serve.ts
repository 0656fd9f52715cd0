/**
 * Serves one entry of the route table: parses what it says there is, calls the handler, and answers
 * with the entry's status. `watchTable` holds that what is served and what the table says are the same.
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { emptyRequestSchema, routes } from "@perdure/protocol";
import type { ApiRoute, JsonAnswer } from "@perdure/protocol";
import { z } from "zod";
import { LOCAL_TENANT } from "./context.ts";
import { parse } from "./parse.ts";

declare module "fastify" {
  interface FastifyContextConfig {
    /** The entry of the route table. */
    readonly entry?: ApiRoute;
  }
}

type Parsed<S> = S extends z.ZodType ? z.output<S> : Readonly<Record<string, never>>;
type Schema<R, K extends keyof ApiRoute> = K extends keyof R ? R[K] : undefined;
type BodySchema<R> = R extends { readonly body: { readonly schema: infer S } } ? S : undefined;

/** One request to route `R`, parsed. */
export interface RouteCall<R extends ApiRoute> {
  readonly tenant: string;
  readonly params: Parsed<Schema<R, "params">>;
  readonly query: Parsed<Schema<R, "query">>;
  /** Empty where the body is bytes: those are in `request`. */
  readonly body: Parsed<BodySchema<R>>;
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

type Answered<R extends ApiRoute> = Frozen<JsonAnswer<R>> | FastifyReply;

/** Serves `route`; what `handle` resolves to is the JSON of the answer, or `reply` where it has answered. */
export function serve<const R extends ApiRoute>(
  server: FastifyInstance,
  route: R,
  handle: (call: RouteCall<R>) => Promise<Answered<R>>,
): void {
  const { method, path, status } = route;
  const entry: ApiRoute = route;
  const bodySchema = entry.body === undefined ? emptyRequestSchema : entry.body.schema;
  server.route({
    method,
    url: path,
    config: { entry },
    handler: async (request, reply) => {
      const call = {
        tenant: LOCAL_TENANT,
        params: parse(entry.params ?? anything, request.params, "path"),
        query: parse(entry.query ?? emptyRequestSchema, request.query, "query"),
        body: bodySchema === null ? {} : parse(bodySchema, request.body ?? {}, "body"),
        request,
        reply,
      } as RouteCall<R>;
      void reply.code(status);
      return handle(call);
    },
  });
}

const anything = z.looseObject({});

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
