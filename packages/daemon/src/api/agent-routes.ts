/** `/v1/agents` and the verbs of one agent. */
import type { FastifyInstance } from "fastify";
import { routes } from "@perdure/protocol";
import type { RouteContext } from "./context.ts";
import { assertMayName } from "./principal.ts";
import { serve } from "./serve.ts";

export function agentRoutes(server: FastifyInstance, { commands }: RouteContext): void {
  serve(server, routes.list, ({ principal: { tenant, agents }, query }) =>
    commands.list({ tenant, ...query, ...(agents === null ? {} : { agents }) }),
  );

  serve(server, routes.create, async ({ principal, tenant, body }) => {
    assertMayName(principal, [body.name]);
    const { memoryBytes, cpus, diskBytes, ...rest } = body;
    const shape = { memoryBytes, cpus, diskBytes };
    return commands.execute({ kind: "create", tenant, shape, ...rest });
  });

  serve(server, routes.show, ({ tenant, params }) => commands.show({ tenant, ...params }));
  serve(server, routes.report, async ({ tenant, params }) => ({
    report: await commands.report({ tenant, ...params }),
  }));
  serve(server, routes.checkpoints, ({ tenant, params, query }) =>
    commands.checkpoints({ tenant, ...params, ...query }),
  );

  for (const kind of ["sleep", "stop", "remove"] as const) {
    serve(server, routes[kind], ({ tenant, params }) =>
      commands.execute({ kind, tenant, ...params }),
    );
  }
  for (const kind of ["wake", "start"] as const) {
    serve(server, routes[kind], ({ tenant, params }) =>
      commands.execute({ kind, tenant, ...params }),
    );
  }
  serve(server, routes.recover, ({ tenant, params, body }) =>
    commands.execute({ kind: "recover", tenant, ...params, ...body }),
  );
  serve(server, routes.restore, ({ tenant, params, body }) =>
    commands.execute({ kind: "restore", tenant, ...params, ...body }),
  );
  serve(server, routes.fork, async ({ principal, tenant, params, body }) => {
    assertMayName(principal, body.names);
    return { forks: [...(await commands.execute({ kind: "fork", tenant, ...params, ...body }))] };
  });
  serve(server, routes.hot, ({ tenant, params, body }) =>
    commands.execute({ kind: "hot", tenant, ...params, ...body }),
  );
  serve(server, routes.checkpoint, ({ tenant, params, body }) =>
    commands.execute({ kind: "checkpoint", tenant, ...params, ...body }),
  );
  serve(server, routes.drop, ({ tenant, params }) =>
    commands.execute({ kind: "drop", tenant, ...params }),
  );
}
