/**
 * The `/v1` server: parses requests into commands and writes their results. It decides nothing.
 *
 * Neighbours: the routes beside it, `core/command.ts` for what they call. The log gets the pattern of
 * a route, never a body, a query or a header: those may hold secrets.
 */
import Fastify from "fastify";
import type { FastifyInstance } from "fastify";
import { apiLimits, attachLimits } from "@perdure/protocol";
import type { ErrorCode } from "@perdure/protocol";
import type { EventLog } from "../core/event-log.ts";
import type { ImageCommands } from "../core/image-verb.ts";
import { agentRoutes } from "./agent-routes.ts";
import { daemonRoutes } from "./daemon-routes.ts";
import type { DaemonFacts } from "./daemon-routes.ts";
import { rawErrorAnswer, sendError, sendNotFound, toPerdureError } from "./error-answer.ts";
import { eventRoutes } from "./event-routes.ts";
import { imageRoutes } from "./image-routes.ts";
import { fileRoutes } from "./file-routes.ts";
import { pathRoutes } from "./path-routes.ts";
import { processRoutes } from "./process-routes.ts";
import { restRoutes } from "./rest-routes.ts";
import type { RequestKeeper } from "./request-keeper.ts";
import { watchTable } from "./serve.ts";
import { prepareSocket, restrictSocket } from "./socket.ts";
import { storeRoutes } from "./store-routes.ts";
import { acceptUpgrades, isWebSocket } from "./upgrade.ts";
import type { Upgrades } from "./upgrade.ts";

/** One answered request. `cause` is the stack of a defect, for the daemon's log only. */
export interface RequestLogEntry {
  readonly method: string;
  readonly route: string;
  readonly status: number;
  readonly tookMs: number;
  readonly code?: ErrorCode;
  readonly cause?: string;
}

export interface ApiServerOptions extends DaemonFacts {
  readonly images: ImageCommands;
  readonly socketPath: string;
  readonly requestKeeper: RequestKeeper;
  /** Between pings of a WebSocket, milliseconds; default as documented. */
  readonly pingMs?: number;
  readonly events: EventLog;
  readonly log?: (entry: RequestLogEntry) => void;
}

export interface ApiServer {
  /** Streams end with `interrupted`, other requests get this long, then connections are cut. */
  close(graceMs?: number): Promise<void>;
}

const GRACE_MS_DEFAULT = 2000;
const IDLE_SWEEP_MS = 25;
const HEADER_BYTES_MAX = 16 * 1024;

/** Listens on the socket. @throws `daemon_running` where another daemon answers on it */
export async function openApiServer(options: ApiServerOptions): Promise<ApiServer> {
  const closing = new AbortController();
  const { server, upgrades } = createServer(options, closing.signal);
  await prepareSocket(options.socketPath);
  await server.listen({ path: options.socketPath });
  await restrictSocket(options.socketPath);
  let closed: Promise<void> | undefined;
  return {
    close: (graceMs = GRACE_MS_DEFAULT) => {
      closing.abort();
      const { server: http } = server;
      const cut = setTimeout(() => {
        http.closeAllConnections();
        upgrades.terminate();
      }, graceMs);
      // A connection whose last answer ends during the grace is idle from then on.
      const sweep = setInterval(() => {
        http.closeIdleConnections();
      }, IDLE_SWEEP_MS);
      closed ??= server.close();
      return closed.finally(() => {
        clearTimeout(cut);
        clearInterval(sweep);
      });
    },
  };
}

function createServer(
  options: ApiServerOptions,
  closing: AbortSignal,
): { server: FastifyInstance; upgrades: Upgrades } {
  const server = Fastify({
    bodyLimit: apiLimits.bodyBytesMax,
    exposeHeadRoutes: false,
    return503OnClosing: false,
    forceCloseConnections: "idle",
    http: { maxHeaderSize: HEADER_BYTES_MAX, shouldUpgradeCallback: isWebSocket },
    routerOptions: { maxParamLength: HEADER_BYTES_MAX, ignoreTrailingSlash: false },
    frameworkErrors: (error, _request, reply) => {
      sendError(reply, toPerdureError(error));
    },
    clientErrorHandler: (error, socket) => {
      if (socket.writable) socket.end(rawErrorAnswer(error));
      else socket.destroy();
    },
  });

  const parseJson = server.getDefaultJsonParser("error", "error");
  server.removeAllContentTypeParsers();
  server.addContentTypeParser("application/json", { parseAs: "string" }, (request, body, done) => {
    if (body === "") done(null, undefined);
    else void parseJson(request, String(body), done);
  });
  observe(server, options.log ?? (() => undefined));
  server.decorate("requestKeeper", options.requestKeeper);
  watchTable(server);

  const upgrades = acceptUpgrades(server);
  const { commands, events, images, pingMs = attachLimits.pingMs } = options;
  const context = { commands, events, images, closing, upgrades, pingMs };
  agentRoutes(server, context);
  restRoutes(server, context);
  processRoutes(server, context);
  fileRoutes(server, context);
  storeRoutes(server, context);
  imageRoutes(server, context);
  pathRoutes(server, context);
  eventRoutes(server, context);
  daemonRoutes(server, options);
  server.setNotFoundHandler(sendNotFound);
  return { server, upgrades };
}

function observe(server: FastifyInstance, log: (entry: RequestLogEntry) => void): void {
  const failures = new WeakMap<object, { code: ErrorCode; cause?: string }>();
  server.setErrorHandler((raised, request, reply) => {
    const error = toPerdureError(raised);
    const cause = error.code === "internal" ? stackOf(error.cause ?? error) : undefined;
    failures.set(request, { code: error.code, ...(cause === undefined ? {} : { cause }) });
    sendError(reply, error);
  });
  server.addHook("onResponse", (request, reply, done) => {
    log({
      method: request.method,
      route: request.routeOptions.url ?? "(none)",
      status: reply.statusCode,
      tookMs: Math.round(reply.elapsedTime),
      ...failures.get(request),
    });
    done();
  });
}

function stackOf(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
