/**
 * The `/v1` server: parses requests into commands and writes their results. It decides nothing. Over TCP E2B's API
 * (e2b/) is served beside it.
 *
 * Neighbours: the routes beside it, `core/command.ts` for what they call. The log gets the pattern of
 * a route, never a body, a query or a header: those may hold secrets.
 */
import { once } from "node:events";
import type { ServerResponse } from "node:http";
import { Server as HttpsServer } from "node:https";
import { createServer as createNetServer } from "node:net";
import type { AddressInfo } from "node:net";
import type { TlsOptions } from "node:tls";
import Fastify from "fastify";
import type { FastifyInstance, FastifyReply, FastifyServerOptions } from "fastify";
import { apiLimits, attachLimits, portLabel } from "@perdure/protocol";
import type { AgentId, ErrorCode, PerdureError } from "@perdure/protocol";
import type { EventLog } from "../core/event-log.ts";
import type { ImageCommands } from "../core/image-verb.ts";
import type { Clock } from "../core/ports/clock.ts";
import type { Log } from "../core/ports/log.ts";
import type { StateStore } from "../core/ports/state-store.ts";
import { agentRoutes } from "./agent-routes.ts";
import { ApiKeys } from "./api-keys.ts";
import { allowOrigins } from "./cross-origin.ts";
import { daemonRoutes } from "./daemon-routes.ts";
import type { DaemonFacts } from "./daemon-routes.ts";
import { dispatch } from "./dispatch.ts";
import { createKeyDoor, guard, socketDoor } from "./door.ts";
import type { Door } from "./door.ts";
import {
  rawErrorAnswer,
  refuseExpectation,
  sendError,
  sendNotFound,
  toPerdureError,
} from "./error-answer.ts";
import { AccessTokens } from "./e2b/access-token.ts";
import { createE2bApi } from "./e2b/e2b-api.ts";
import type { sendE2bError } from "./e2b/e2b-error.ts";
import { createServices } from "./e2b/services.ts";
import { egressRoutes } from "./egress-routes.ts";
import { eventRoutes } from "./event-routes.ts";
import { imageRoutes } from "./image-routes.ts";
import { fileRoutes } from "./file-routes.ts";
import { keyRoutes } from "./key-routes.ts";
import { pathRoutes } from "./path-routes.ts";
import { portRoutes } from "./port-routes.ts";
import { Preview } from "./preview/preview.ts";
import { processRoutes } from "./process-routes.ts";
import type { Principal } from "./principal.ts";
import { Reach } from "./reach.ts";
import { RefusalLimit } from "./refusal-limit.ts";
import { restRoutes } from "./rest-routes.ts";
import type { RequestKeeper } from "./request-keeper.ts";
import { watchTable } from "./serve.ts";
import { prepareSocket, restrictSocket } from "./socket.ts";
import { storeRoutes } from "./store-routes.ts";
import { listenError, PREVIEW_DOMAIN_DEFAULT, TCP_CONNECTIONS_MAX } from "./tcp.ts";
import type { TcpListen } from "./tcp.ts";
import type { Certificates } from "./tls/certificates.ts";
import { acceptUpgrades, isWebSocket } from "./upgrade.ts";
import type { Upgrades } from "./upgrade.ts";

/** One answered request. `cause` is the stack of a defect, for the daemon's log only. */
export interface RequestLogEntry {
  readonly method: string;
  readonly route: string;
  readonly status: number;
  /** Who asked: `local`, or the id of an API key. */
  readonly by: string;
  readonly tookMs: number;
  readonly code?: ErrorCode;
  readonly cause?: string;
}

export interface ApiServerOptions extends DaemonFacts {
  readonly images: ImageCommands;
  readonly socketPath: string;
  /** Where callers with API keys are let in, too; absent or null: nowhere. */
  readonly tcp?: TcpListen | null;
  readonly state: StateStore;
  readonly clock: Clock;
  readonly requestKeeper: RequestKeeper;
  /** From the last byte of a request to a preview host until the head of its answer, milliseconds. */
  readonly previewAnswerMs?: number;
  /** Of a TLS connection, until both sides have agreed on how they speak, milliseconds. */
  readonly handshakeMs?: number;
  /** Between pings of a WebSocket, milliseconds; default as documented. */
  readonly pingMs?: number;
  readonly events: EventLog;
  /** 32 bytes that tokens of sandboxes are made of, the same after a restart. */
  readonly tokenKey: Uint8Array;
  /** Where uploads are kept until they are whole. */
  readonly spoolDir: string;
  readonly log?: (entry: RequestLogEntry) => void;
  /** Where what is no request is told: keys that are refused. */
  readonly daemonLog: Log;
}

export interface ApiServer {
  /** As in `http://127.0.0.1:7070`; null where it listens on its socket alone. */
  readonly url: string | null;
  /** Streams end with `interrupted`, other requests get this long, then connections are cut. */
  close(graceMs?: number): Promise<void>;
}

const GRACE_MS_DEFAULT = 2000;
const IDLE_SWEEP_MS = 25;
/** Of silence on a TCP connection; then the kernel asks whether anybody is there, for some minutes. */
const SILENT_CALLER_MS = 60_000;
/** A caller whose host went away without a word would be there for ever, and keep its agent awake. */
const SOCKET_OPTIONS = { keepAlive: true, keepAliveInitialDelay: SILENT_CALLER_MS };
const HANDSHAKE_MS = 20_000;
const HEADER_BYTES_MAX = 16 * 1024;

/**
 * Listens on the socket, and on TCP where that is asked for.
 *
 * @throws `daemon_running` where another daemon answers on the socket, `bad_request` where it cannot listen
 */
export async function openApiServer(options: ApiServerOptions): Promise<ApiServer> {
  const closing = new AbortController();
  const { state, clock, log = () => undefined, tcp = null } = options;
  const keys = new ApiKeys({ state, clock, log: options.daemonLog });
  const url = (): string | null => {
    const address = remote?.server.server.address() ?? null;
    return tcp === null || address === null ? null : urlOf(tcp, address);
  };
  const previewDomain = tcp?.previewDomain ?? PREVIEW_DOMAIN_DEFAULT;
  const shared = { options, closing: closing.signal, keys, log, url, previewDomain };
  const remote = tcp === null ? null : remoteDoor(shared, tcp);
  const local = createServer({ ...shared, door: socketDoor, tcp: null });
  const close = async (graceMs: number): Promise<void> => {
    closing.abort();
    await Promise.all([local, ...(remote === null ? [] : [remote])].map(closeDoor(graceMs)));
  };
  await Promise.all((remote?.inner ?? []).map((inner) => inner.ready()));
  await prepareSocket(options.socketPath);
  await local.server.listen({ path: options.socketPath });
  await restrictSocket(options.socketPath);
  try {
    if (tcp !== null && remote !== null) await listenOn(remote.server, tcp, closing.signal);
  } catch (error) {
    await close(0);
    throw listenError(tcp, error);
  }
  let closed: Promise<void> | undefined;
  return {
    url: url(),
    close: (graceMs = GRACE_MS_DEFAULT) => (closed ??= close(graceMs)),
  };
}

/**
 * On every address of `localhost`, with one server behind all of them: Fastify would make one more for each, that has
 * nothing of what is set on this one.
 */
async function listenOn(
  server: FastifyInstance,
  { host, port }: TcpListen,
  closing: AbortSignal,
): Promise<void> {
  if (host.toLowerCase() !== "localhost") {
    await server.listen({ host, port });
    return;
  }
  await server.listen({ host: "127.0.0.1", port });
  const { server: http } = server;
  const other = createNetServer(SOCKET_OPTIONS, (socket) => http.emit("connection", socket));
  other.maxConnections = TCP_CONNECTIONS_MAX;
  closing.addEventListener("abort", () => other.close(), { once: true });
  other.listen({ host: "::1", port: (http.address() as AddressInfo).port });
  // Not every host has it.
  await once(other, "listening").catch(() => undefined);
}

function remoteDoor(shared: Omit<DoorOptions, "door" | "tcp">, tcp: TcpListen): Listening {
  const { keys, options } = shared;
  const door = createKeyDoor({ keys, clock: options.clock, log: options.daemonLog });
  try {
    return createServer({ ...shared, door, tcp });
  } catch (error) {
    // Of certificates that are none.
    throw listenError(tcp, error);
  }
}

interface Listening {
  readonly server: FastifyInstance;
  readonly upgrades: Upgrades;
  /** Servers without a listener of their own, behind the same one. */
  readonly inner: readonly FastifyInstance[];
}

const closeDoor =
  (graceMs: number) =>
  async ({ server, upgrades, inner }: Listening): Promise<void> => {
    const { server: http } = server;
    const cut = setTimeout(() => {
      http.closeAllConnections();
      upgrades.terminate();
    }, graceMs);
    // A connection whose last answer ends during the grace is idle from then on.
    const sweep = setInterval(() => {
      http.closeIdleConnections();
    }, IDLE_SWEEP_MS);
    await server.close().finally(() => {
      clearTimeout(cut);
      clearInterval(sweep);
    });
    await Promise.all(inner.map((one) => one.close()));
  };

function urlOf({ tls }: TcpListen, address: AddressInfo | string | null): string {
  if (address === null || typeof address === "string") throw new Error("It listens on no port");
  const host = address.family === "IPv6" ? `[${address.address}]` : address.address;
  return `${tls === null ? "http" : "https"}://${host}:${address.port}`;
}

interface DoorOptions {
  /** Of TCP, once it listens. */
  readonly url: () => string | null;
  readonly previewDomain: string;
  readonly options: ApiServerOptions;
  readonly closing: AbortSignal;
  readonly keys: ApiKeys;
  readonly log: (entry: RequestLogEntry) => void;
  readonly door: Door;
  readonly tcp: TcpListen | null;
}

function createServer(facts: DoorOptions): Listening {
  const { options, closing, keys, log, door, tcp, url, previewDomain } = facts;
  const http = {
    maxHeaderSize: HEADER_BYTES_MAX,
    shouldUpgradeCallback: isWebSocket,
    ...SOCKET_OPTIONS,
  };
  const settings: FastifyServerOptions = {
    bodyLimit: apiLimits.bodyBytesMax,
    exposeHeadRoutes: false,
    return503OnClosing: false,
    forceCloseConnections: "idle",
    routerOptions: { maxParamLength: HEADER_BYTES_MAX, ignoreTrailingSlash: false },
    frameworkErrors: (error, _request, reply) => {
      sendError(reply, toPerdureError(error));
    },
    clientErrorHandler: (error, socket) => {
      if (socket.writable) socket.end(rawErrorAnswer(error));
      else socket.destroy();
    },
  };
  const tls = tcp?.tls ?? null;
  const server =
    tls === null
      ? Fastify({ ...settings, http })
      : // A server of TLS has all that one in the clear has.
        (Fastify({
          ...settings,
          https: { ...http, ...tlsOptions(tls, options.handshakeMs) },
        } as object) as FastifyInstance);
  if (tls !== null) followCertificates(server.server, tls);
  server.server.on("checkExpectation", (_request, response: ServerResponse) => {
    refuseExpectation(response);
  });
  if (tcp !== null) server.server.maxConnections = TCP_CONNECTIONS_MAX;

  const parseJson = server.getDefaultJsonParser("error", "error");
  server.removeAllContentTypeParsers();
  server.addContentTypeParser("application/json", { parseAs: "string" }, (request, body, done) => {
    if (body === "") done(null, undefined);
    else void parseJson(request, String(body), done);
  });
  observe(server, log, sendError);
  server.decorate("requestKeeper", options.requestKeeper);
  watchTable(server);
  const reach = new Reach(options.state);
  if (tcp !== null) allowOrigins(server, tcp.corsOrigins);
  guard(server, door, reach);

  const upgrades = acceptUpgrades(server);
  const { commands, events, images, pingMs = attachLimits.pingMs } = options;
  const context = {
    ...{ commands, events, images, keys, reach, closing, upgrades, pingMs },
    previewUrl: (agent: AgentId, port: number) => previewUrl(url(), previewDomain, agent, port),
  };
  agentRoutes(server, context);
  restRoutes(server, context);
  processRoutes(server, context);
  fileRoutes(server, context);
  storeRoutes(server, context);
  imageRoutes(server, context);
  pathRoutes(server, context);
  portRoutes(server, context);
  egressRoutes(server, context);
  eventRoutes(server, context);
  keyRoutes(server, context);
  daemonRoutes(server, options);
  server.setNotFoundHandler(sendNotFound);
  const inner = tcp === null ? [] : serveOthers(server, facts, { reach, tcp });
  return { server, upgrades, inner };
}

/** Clients of HTTP/2 fall back to 1.1: nothing else is offered to them. */
function tlsOptions(tls: Certificates, handshakeTimeout = HANDSHAKE_MS): TlsOptions {
  return {
    ...tls.pair,
    handshakeTimeout,
    SNICallback: (name, done) => {
      tls.contextFor(name).then(
        (context) => done(null, context ?? undefined),
        (error: unknown) => done(error as Error),
      );
    },
  };
}

function followCertificates(server: unknown, tls: Certificates): void {
  if (!(server instanceof HttpsServer)) throw new TypeError("TLS on a server without it");
  tls.follow((pair) => server.setSecureContext(pair));
  // Nothing can be said to whoever did not get through the handshake, and what is said would be waited for.
  server.removeAllListeners("tlsClientError");
  server.on("tlsClientError", (_error, socket) => socket.destroy());
}

/** @param base of the listener */
function previewUrl(
  base: string | null,
  domain: string,
  agent: AgentId,
  port: number,
): string | null {
  const host = hostOf(base, `${portLabel(agent, port)}.${domain}`);
  return base === null || host === null ? null : `${new URL(base).protocol}//${host}/`;
}

/** `name` with the listener's port, where that is not its protocol's own. */
function hostOf(base: string | null, name: string): string | null {
  if (base === null) return null;
  const { port } = new URL(base);
  return port === "" ? name : `${name}:${port}`;
}

/** E2B's clients, and programs inside, from the same listener. Returns the servers that stand behind it. */
function serveOthers(
  server: FastifyInstance,
  { options, closing, keys, door, log, url, previewDomain: domain }: DoorOptions,
  { reach, tcp }: { readonly reach: Reach; readonly tcp: TcpListen },
): readonly FastifyInstance[] {
  const { commands, clock, state, spoolDir, images, events, previewAnswerMs } = options;
  const tokens = new AccessTokens(options.tokenKey);
  const sandboxDomain = (): string | null => hostOf(url(), domain);
  const context = { commands, clock, state, reach, tokens, spoolDir, closing, sandboxDomain };
  const watched = (inner: FastifyInstance, send: typeof sendE2bError): void => {
    observe(inner, log, send);
    allowOrigins(inner, tcp.corsOrigins);
  };
  const api = createE2bApi(context, { images, events, door, observe: watched });
  const services = createServices(context, watched);
  const ports = new Preview({
    ...{ commands, state, log },
    doorkeeper: { keys, tokens, reach, clock, limit: new RefusalLimit() },
    ...(previewAnswerMs === undefined ? {} : { answerMs: previewAnswerMs }),
  });
  closing.addEventListener("abort", () => ports.close(), { once: true });
  dispatch(server.server, { domain, api, services, ports });
  return [api.server, services.server];
}

/** Answers errors by `send`, and logs every request. */
function observe(
  server: FastifyInstance,
  log: (entry: RequestLogEntry) => void,
  send: (reply: FastifyReply, error: PerdureError) => void,
): void {
  const failures = new WeakMap<object, { code: ErrorCode; cause?: string }>();
  server.setErrorHandler((raised, request, reply) => {
    const error = toPerdureError(raised);
    const cause = error.code === "internal" ? stackOf(error.cause ?? error) : undefined;
    failures.set(request, { code: error.code, ...(cause === undefined ? {} : { cause }) });
    send(reply, error);
  });
  server.addHook("onResponse", (request, reply, done) => {
    log({
      method: request.method,
      route: request.routeOptions.url ?? "(none)",
      status: reply.statusCode,
      // Not there where the request could not even be read.
      by: (request.principal as Principal | undefined)?.id ?? "nobody",
      tookMs: Math.round(reply.elapsedTime),
      ...failures.get(request),
    });
    done();
  });
}

function stackOf(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
