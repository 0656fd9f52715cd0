/** API keys. */
import type { FastifyInstance } from "fastify";
import { routes } from "@perdure/protocol";
import type { RouteContext } from "./context.ts";
import { serve } from "./serve.ts";

export function keyRoutes(server: FastifyInstance, { keys }: RouteContext): void {
  serve(server, routes.createKey, ({ tenant, body }) => keys.create({ tenant, ...body }));
  serve(server, routes.keys, ({ tenant, query: { after = "", limit } }) =>
    keys.list(tenant, after, limit),
  );
  serve(server, routes.revokeKey, ({ tenant, params }) => keys.revoke(tenant, params.key));
}
