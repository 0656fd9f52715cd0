/** When agents rest: settings, holds, why, quarantine. */
import type { FastifyInstance } from "fastify";
import { routes } from "@perdure/protocol";
import type { RouteContext } from "./context.ts";
import { serve } from "./serve.ts";

export function restRoutes(server: FastifyInstance, { commands }: RouteContext): void {
  serve(server, routes.configure, ({ tenant, params, body }) =>
    commands.execute({ kind: "configure", tenant, ...params, ...body }),
  );
  serve(server, routes.why, ({ tenant, params }) => commands.why({ tenant, ...params }));
  serve(server, routes.hold, ({ tenant, params, body }) =>
    commands.execute({ kind: "hold", tenant, ...params, ...body }),
  );
  serve(server, routes.endHold, ({ tenant, params }) =>
    commands.execute({ kind: "end-hold", tenant, ...params }),
  );
  serve(server, routes.quarantine, ({ tenant, params, body }) =>
    commands.execute({ kind: "quarantine", tenant, ...params, ...body }),
  );
  serve(server, routes.release, ({ tenant, params }) =>
    commands.execute({ kind: "release", tenant, ...params }),
  );
}
