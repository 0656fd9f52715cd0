/** The way out of an agent: its policy, and its connections. */
import type { FastifyInstance } from "fastify";
import { routes } from "@perdure/protocol";
import type { RouteContext } from "./context.ts";
import { serve } from "./serve.ts";

export function egressRoutes(server: FastifyInstance, { commands }: RouteContext): void {
  serve(server, routes.egress, ({ tenant, params }) => commands.egress({ tenant, ...params }));
  serve(server, routes.setEgress, ({ tenant, params, body: policy }) =>
    commands.execute({ kind: "set-egress", tenant, ...params, policy }),
  );
  serve(server, routes.connections, ({ tenant, params, query }) =>
    commands.connections({ tenant, ...params, ...query }),
  );
}
