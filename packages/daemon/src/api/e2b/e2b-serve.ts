/** Serves one entry of E2B's table: parses, calls the handler, writes the answer. Errors have E2B's form. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { PerdureError } from "@perdure/protocol";
import type { AgentId, AgentView } from "@perdure/protocol";
import type { z } from "zod";
import { parse } from "../parse.ts";
import type { Door } from "../door.ts";
import { anonymous, assertMayUse } from "../principal.ts";
import type { Principal } from "../principal.ts";
import type { E2bContext } from "./e2b-context.ts";
import { e2bRoutes } from "./e2b-table.ts";
import type { E2bRoute } from "./e2b-table.ts";
import { agentOf } from "./sandbox-id.ts";

declare module "fastify" {
  interface FastifyContextConfig {
    /** The entry of E2B's table. */
    readonly e2b?: E2bRoute;
  }
}

export interface E2bCall<B extends z.ZodType, Q extends z.ZodType> {
  readonly principal: Principal;
  readonly tenant: string;
  readonly params: Readonly<Record<string, string>>;
  /** The agent that the path names, reached by the caller. @throws `agent_not_found` */
  readonly agent: () => Promise<AgentId>;
  readonly body: z.output<B>;
  readonly query: z.output<Q>;
  readonly reply: FastifyReply;
  readonly request: FastifyRequest;
}

interface Schemas<B, Q> {
  readonly body?: B;
  readonly query?: Q;
}

export type E2bServe = <B extends z.ZodType = z.ZodNever, Q extends z.ZodType = z.ZodNever>(
  route: E2bRoute,
  schemas: Schemas<B, Q>,
  handle: (call: E2bCall<B, Q>) => Promise<unknown>,
) => void;

/** What `handle` resolves to is the answer; undefined: there is no body, and the status is 204. */
export function createServe(server: FastifyInstance, { reach }: E2bContext): E2bServe {
  return (route, schemas, handle) => {
    server.route({
      method: route.method,
      url: route.path,
      config: { e2b: route },
      handler: async (request, reply) => {
        const { principal } = request;
        const params = request.params as Readonly<Record<string, string>>;
        const { body, query } = schemas;
        const answer = await handle({
          principal,
          tenant: principal.tenant,
          params,
          agent: () => reached(reach, principal, params["sandboxID"] ?? ""),
          body: (body === undefined ? undefined : parse(body, request.body ?? {}, "body")) as never,
          query: (query === undefined ? undefined : parse(query, request.query, "query")) as never,
          reply,
          request,
        });
        if (answer === undefined) return reply.code(204).send();
        return reply.type("application/json; charset=utf-8").send(JSON.stringify(answer));
      },
    });
  };
}

/** Serves what is in the table and not supported. */
export function refuseUnsupportedRoutes(serve: E2bServe): void {
  for (const route of Object.values<E2bRoute>(e2bRoutes)) {
    if (route.scope !== null) continue;
    serve(route, {}, () => {
      const what = `${route.method} ${route.path}`;
      throw new PerdureError("not_supported", `Cannot do "${what}": not supported`, {
        hint: route.summary,
      });
    });
  }
}

/** Before the first route: refuses to start a server whose routes are not those of the table. */
export function watchE2bTable(server: FastifyInstance): void {
  const missing = new Set<E2bRoute>(Object.values(e2bRoutes));
  server.addHook("onRoute", ({ method, url, config }) => {
    const entry = config?.e2b;
    if (entry === undefined || !missing.delete(entry)) {
      throw new Error(`${String(method)} ${url} is not in E2B's table, or is served twice`);
    }
  });
  server.addHook("onReady", (done) => {
    const left = [...missing].map(({ method, path }) => `${method} ${path}`);
    done(left.length === 0 ? undefined : new Error(`Nobody serves ${left.join(", ")}`));
  });
}

/** Who asks may do so. @throws `unauthenticated`, `forbidden` */
export function guardE2b(server: FastifyInstance, door: Door): void {
  server.decorateRequest("principal");
  server.addHook("onRequest", async (request) => {
    const principal = await door(request.raw);
    request.principal = principal;
    const { e2b } = request.routeOptions.config;
    if (e2b?.path === e2bRoutes.health.path) return;
    if (principal === anonymous) {
      throw new PerdureError("unauthenticated", "Cannot tell who asks: no key was sent", {
        hint: 'Send "x-api-key: e2b_…", as "perdure key create --e2b" shows it.',
      });
    }
    assertMayUse(principal, e2b?.scope ?? "read", `${request.method} ${e2b?.path ?? ""}`);
  });
}

/** @throws `agent_not_found` */
export async function reached(
  reach: E2bContext["reach"],
  principal: Principal,
  sandboxId: string,
): Promise<AgentId> {
  const agent = agentOf(sandboxId);
  if (agent === null) {
    throw new PerdureError("agent_not_found", `Sandbox "${sandboxId.slice(0, 64)}" was not found`);
  }
  await reach.assert(principal, agent);
  return agent;
}

/** Null where there is none that the caller reaches. */
export async function findSandbox(
  { commands, reach }: E2bContext,
  principal: Principal,
  sandboxId: string,
): Promise<AgentView | null> {
  try {
    const agent = await reached(reach, principal, sandboxId);
    return await commands.show({ tenant: principal.tenant, agent });
  } catch (error) {
    if (error instanceof PerdureError && error.code === "agent_not_found") return null;
    throw error;
  }
}
