/**
 * Programs' ports inside, for HTTP/1.1 and WebSockets on the daemon's TCP listener: by a preview host of its own for
 * each port, `<port>-<id>.<domain>`, so that no page from inside is of the origin of `/v1`; or by E2B's headers (aim.ts).
 *
 * Node's own server and client speak HTTP at either end; between them are streams, so what is held of a body is what
 * sockets and windows hold. A request wakes the agent, and keeps it awake until the head of its answer; after that what
 * passes does (core/port.ts).
 */
import { request as httpRequest } from "node:http";
import type { ClientRequest, IncomingMessage, RequestOptions, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { pipeline } from "node:stream";
import { PerdureError } from "@perdure/protocol";
import type { ErrorCode } from "@perdure/protocol";
import type { Agent } from "../../core/agent.ts";
import type { Commands } from "../../core/command.ts";
import type { StateStore } from "../../core/ports/state-store.ts";
import type { PortAim } from "../aim.ts";
import { portError } from "../e2b/e2b-error.ts";
import type { Upgrade } from "../upgrade.ts";
import { answerHeaders, requestHeaders } from "./header.ts";
import { PortDuplex } from "./port-duplex.ts";
import { PortPool } from "./port-pool.ts";
import type { PortRequest } from "./port-pool.ts";
import { admit, TOKEN_COOKIE, withoutToken } from "./visitor.ts";
import type { Doorkeeper } from "./visitor.ts";

/** From the last byte of a request until the head of its answer. */
export const ANSWER_MS_DEFAULT = 120_000;
const KEEP_ALIVE_MS = 30_000;
/** For a visitor's end, after the program's. */
const LINGER_MS = 5_000;
/** Of the visitor, or a defect here. That a program cannot be reached is the gateway's error, whatever the reason. */
const OWN_CODES: ReadonlySet<ErrorCode> = new Set([
  ...(["unauthenticated", "forbidden", "bad_request", "too_many", "internal"] as const),
]);

export interface PreviewOptions {
  readonly commands: Pick<Commands, "connect">;
  readonly state: Pick<StateStore, "agent">;
  readonly doorkeeper: Doorkeeper;
  readonly answerMs?: number;
  readonly log: (entry: {
    method: string;
    route: string;
    status: number;
    by: string;
    tookMs: number;
    code?: ErrorCode;
  }) => void;
}

/** One visit, from its request to the end of its answer. */
interface Visit {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly aim: PortAim;
  readonly upgrade: Upgrade | null;
  by: string;
  code?: ErrorCode;
}

export class Preview {
  readonly #options: PreviewOptions;
  readonly #pool: PortPool;
  readonly #upgraded = new Set<Duplex>();
  #visits = 0;

  constructor(options: PreviewOptions) {
    this.#options = options;
    this.#pool = new PortPool(options.commands);
  }

  serve(
    request: IncomingMessage,
    response: ServerResponse,
    aim: PortAim,
    upgrade: Upgrade | null,
  ): void {
    const visit: Visit = { request, response, aim, upgrade, by: "nobody" };
    const startedMs = performance.now();
    response.once("close", () => {
      this.#options.log({
        method: request.method ?? "",
        route: "(preview)",
        status: response.statusCode,
        by: visit.by,
        tookMs: Math.round(performance.now() - startedMs),
        ...(visit.code === undefined ? {} : { code: visit.code }),
      });
    });
    response.on("error", () => undefined);
    this.#serve(visit).catch((error: unknown) => {
      refuse(visit, PerdureError.from(error));
    });
  }

  close(): void {
    this.#pool.destroy();
    for (const socket of this.#upgraded) socket.destroy();
  }

  async #serve(visit: Visit): Promise<void> {
    const { request, response, aim } = visit;
    const agent = aim.agent === null ? null : await this.#options.state.agent(aim.agent);
    const found = agent?.state === "removed" ? null : agent;
    if (found === null && aim.sandbox !== null) throw nobody();
    const visitor = await admit(request, found, aim.port, this.#options.doorkeeper);
    visit.by = visitor.id;
    if (found === null) throw nobody();
    const path = withoutToken(request.url ?? "/");
    if (!path.startsWith("/") && path !== "*") {
      throw new PerdureError("bad_request", "Cannot visit an address that is no path");
    }
    const isPage = request.method === "GET" || request.method === "HEAD";
    const isOwnHost = aim.sandbox === null;
    if (visitor.fromQuery !== null && isOwnHost && visit.upgrade === null && isPage) {
      // Only of this host: no `//other.example` may be made of the path.
      const location = path.replace(/^[/\\]+/, "/");
      const secure = "encrypted" in request.socket ? "; Secure" : "";
      response.writeHead(303, {
        location,
        "set-cookie": `${TOKEN_COOKIE}=${visitor.fromQuery}; Path=/; HttpOnly; SameSite=Lax${secure}`,
        "cache-control": "no-store",
        "referrer-policy": "no-referrer",
      });
      response.end();
      return;
    }
    this.#pass(visit, found, path, !mayBeRepeated(request) || visit.upgrade !== null);
  }

  /** `fresh`: over a connection of its own. One that waited may be closed by the program just now. */
  #pass(visit: Visit, agent: Agent, path: string, fresh: boolean): void {
    const { request, response, aim, upgrade } = visit;
    const { tenant, id, generation, wakeOnTraffic: wakes = true } = agent;
    const own = fresh ? { own: ++this.#visits } : {};
    const portKey = { tenant, agent: id, generation, port: aim.port, wakes, ...own };
    const wanted: RequestOptions & PortRequest = {
      agent: this.#pool,
      portKey,
      method: request.method,
      path,
      headers: requestHeaders(request, upgrade !== null),
      setHost: false,
    };
    const passed = httpRequest(wanted);
    const answerMs = this.#options.answerMs ?? ANSWER_MS_DEFAULT;
    const late = setTimeout(() => {
      const message = `Nothing on port ${aim.port} answered within ${answerMs} ms`;
      passed.destroy(new PerdureError("guest_timeout", message));
    }, answerMs);
    let leave = (): void => undefined;
    const answered = (): void => {
      clearTimeout(late);
      leave();
    };
    passed.once("socket", (socket: Duplex) => {
      if (socket instanceof PortDuplex) leave = socket.connection.attend();
    });
    passed.once("close", answered);
    passed.once("response", (answer) => {
      answered();
      send(visit, answer);
    });
    passed.once("upgrade", (answer, socket, head) => {
      answered();
      if (upgrade === null) socket.destroy();
      else this.#join(visit, answer, socket, head);
    });
    passed.on("error", (error) => {
      const again = passed.reusedSocket && !fresh && !response.headersSent && isCut(error);
      if (again && !response.destroyed) this.#pass(visit, agent, path, true);
      else refuse(visit, reasonOf(error));
    });
    response.once("close", () => {
      if (!response.writableFinished) passed.destroy();
    });
    if (!hasBody(request)) {
      passed.end();
      return;
    }
    request.on("data", () => late.refresh());
    feed(request, passed);
  }

  /** Both ends speak their own protocol from here on. */
  #join({ response, upgrade }: Visit, answer: IncomingMessage, inside: Duplex, head: Buffer): void {
    const { socket, head: early } = upgrade as NonNullable<Visit["upgrade"]>;
    this.#upgraded.add(socket);
    socket.once("close", () => this.#upgraded.delete(socket));
    response.sendDate = false;
    const headers = [...answerHeaders(answer), "Connection", "Upgrade", "Upgrade", "websocket"];
    response.writeHead(101, answer.statusMessage, headers);
    response.flushHeaders();
    response.detachSocket(socket);
    socket.setKeepAlive(true, KEEP_ALIVE_MS);
    socket.setNoDelay(true);
    if (head.length > 0) socket.write(head);
    if (early.length > 0) inside.write(early);
    join(socket, inside);
  }
}

/** Each side's end is the other's; a side that breaks off is cut on the other. */
function join(socket: Socket, inside: Duplex): void {
  const cut = (): void => {
    socket.destroy();
    inside.destroy();
  };
  socket.on("error", cut).once("close", cut).pipe(inside);
  inside.on("error", cut).pipe(socket);
  inside.once("close", () => {
    if (!inside.readableEnded) cut();
  });
  socket.once("finish", () => {
    // A visitor that is still sending would have its own bytes thrown back at it, and lose the end of ours.
    socket.resume();
    const late = setTimeout(cut, LINGER_MS).unref();
    socket.once("close", () => clearTimeout(late));
  });
}

/** A program that broke its connection off may have carried the request out. */
function mayBeRepeated(request: IncomingMessage): boolean {
  return ["GET", "HEAD", "OPTIONS"].includes(request.method ?? "") && !hasBody(request);
}

function hasBody({ headers }: IncomingMessage): boolean {
  return headers["transfer-encoding"] !== undefined || Number(headers["content-length"] ?? 0) > 0;
}

/** A program may answer, and stop reading, before all of the body has come. */
function feed(request: IncomingMessage, passed: ClientRequest): void {
  request.on("error", () => passed.destroy());
  request.once("close", () => {
    if (!request.complete) passed.destroy();
  });
  request.pipe(passed);
}

function send({ response }: Visit, answer: IncomingMessage): void {
  if (response.headersSent || response.destroyed) {
    answer.destroy();
    return;
  }
  response.writeHead(answer.statusCode ?? 502, answer.statusMessage, answerHeaders(answer));
  // Events come one by one, and the first may be long in coming.
  response.flushHeaders();
  pipeline(answer, response, (error) => {
    // Half of an answer is not the whole.
    if (error != null) response.destroy();
  });
}

function refuse(visit: Visit, error: PerdureError): void {
  const { response } = visit;
  visit.code ??= error.code;
  if (response.headersSent) {
    response.destroy();
    return;
  }
  if (response.destroyed) return;
  const { retryAfterMs } = error.details;
  const { sandbox, port } = visit.aim;
  const status = OWN_CODES.has(error.code) ? error.status : 502;
  response.writeHead(status, {
    "content-type": "application/json; charset=utf-8",
    "cache-control": "no-store",
    ...(typeof retryAfterMs === "number"
      ? { "retry-after": String(Math.ceil(retryAfterMs / 1000)) }
      : {}),
    // What is left of the request is not read.
    connection: "close",
  });
  const body = sandbox === null ? error : portError(error, { sandbox, port, status });
  response.end(JSON.stringify(body));
}

function nobody(): PerdureError {
  return new PerdureError("agent_not_found", "No agent has this id");
}

function isCut(error: unknown): boolean {
  const { code } = error as { code?: string };
  return code === "ECONNRESET" || code === "connection_reset" || code === "interrupted";
}

function reasonOf(error: unknown): PerdureError {
  if (error instanceof PerdureError) return error;
  const { code = "", message } = error as { code?: string; message: string };
  // The parser's words for what the program sent.
  const why = code.startsWith("HPE_") ? `it does not speak HTTP (${message})` : message;
  return new PerdureError("connection_reset", `The program inside gave no answer: ${why}`, {
    cause: error,
  });
}
