/** E2B's API on the TCP listener: a server without a listener of its own, with a table and errors of its own. */
import type { IncomingMessage, ServerResponse } from "node:http";
import Fastify from "fastify";
import type { FastifyInstance } from "fastify";
import { apiLimits } from "@perdure/protocol";
import type { EventLog } from "../../core/event-log.ts";
import type { ImageCommands } from "../../core/image-verb.ts";
import type { Door } from "../door.ts";
import { toPerdureError } from "../error-answer.ts";
import { createServe, guardE2b, refuseUnsupportedRoutes, watchE2bTable } from "./e2b-serve.ts";
import type { E2bContext } from "./e2b-context.ts";
import { sendCode, sendE2bError } from "./e2b-error.ts";
import { listRoutes } from "./list-routes.ts";
import { logRoutes } from "./log-routes.ts";
import { sandboxRoutes } from "./sandbox-routes.ts";

/** A Fastify that answers requests of another server. */
export interface Inner {
  readonly server: FastifyInstance;
  readonly handle: (request: IncomingMessage, response: ServerResponse) => void;
}

export function createE2bApi(
  context: E2bContext,
  parts: {
    readonly images: ImageCommands;
    readonly events: EventLog;
    readonly door: Door;
    readonly observe: (server: FastifyInstance, send: typeof sendE2bError) => void;
  },
): Inner {
  const server = Fastify({
    bodyLimit: apiLimits.bodyBytesMax,
    exposeHeadRoutes: false,
    return503OnClosing: false,
    frameworkErrors: (error, _request, reply) => {
      sendE2bError(reply, toPerdureError(error));
    },
  });
  const parseJson = server.getDefaultJsonParser("error", "error");
  server.removeAllContentTypeParsers();
  server.addContentTypeParser("application/json", { parseAs: "string" }, (request, body, done) => {
    if (body === "") done(null, undefined);
    else void parseJson(request, String(body), done);
  });
  parts.observe(server, sendE2bError);
  watchE2bTable(server);
  guardE2b(server, parts.door);
  const serve = createServe(server, context);
  sandboxRoutes(serve, context);
  listRoutes(serve, context, parts.images);
  logRoutes(serve, parts.events);
  refuseUnsupportedRoutes(serve);
  server.setNotFoundHandler((request, reply) => {
    sendCode(reply, 404, `There is no route ${request.method} ${request.url.split("?")[0] ?? ""}`);
  });
  return {
    server,
    handle: (request, response) => {
      server.routing(request, response);
    },
  };
}
