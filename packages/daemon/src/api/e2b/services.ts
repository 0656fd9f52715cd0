/**
 * What a sandbox itself serves to E2B's clients, on its port 49983: files, and the Connect services. The daemon
 * answers in its place; nothing of it runs inside. Every call has the sandbox's access token, or a signed path.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import { Readable } from "node:stream";
import { createConnectRouter, createContextValues } from "@connectrpc/connect";
import type { HandlerContext, Interceptor } from "@connectrpc/connect";
import {
  compressionBrotli,
  compressionGzip,
  universalRequestFromNodeRequest,
  universalResponseToNodeResponse,
} from "@connectrpc/connect-node";
import Fastify from "fastify";
import type { FastifyInstance } from "fastify";
import { MIB, PerdureError } from "@perdure/protocol";
import { z } from "zod";
import { untilGone } from "../gone.ts";
import { parse } from "../parse.ts";
import { Accounts } from "./account.ts";
import type { Aim } from "../aim.ts";
import { callerKey, userIn } from "./caller.ts";
import type { Caller } from "./caller.ts";
import type { E2bContext } from "./e2b-context.ts";
import { sendCode, sendFileError, toConnectError } from "./e2b-error.ts";
import { FileTransfer } from "./file-transfer.ts";
import { filesystemService } from "./filesystem-service.ts";
import { letIn } from "./let-in.ts";
import { processService } from "./process-service.ts";
import { Filesystem } from "./schema/filesystem.mjs";
import { Process } from "./schema/process.mjs";
import { measure } from "./usage.ts";

/** Of one message, after it was unpacked. */
const MESSAGE_BYTES_MAX = 4 * MIB;
/** Longer timers would end at once. */
const TIMEOUT_MS_MAX = 2 ** 31 - 1;

declare module "fastify" {
  interface FastifyRequest {
    caller: Caller | null;
  }
}

export interface Services {
  readonly server: FastifyInstance;
  handle(request: IncomingMessage, response: ServerResponse, aim: InsideAim): void;
}

type InsideAim = Extract<Aim, { kind: "services" | "signed" }>;

const fileQuerySchema = z.looseObject({
  path: z.string().default(""),
  username: z.string().max(64).optional(),
});

export function createServices(
  context: E2bContext,
  observe: (server: FastifyInstance, send: typeof sendFileError) => void,
): Services {
  const { commands, clock, closing } = context;
  const aims = new WeakMap<IncomingMessage, InsideAim>();
  const accounts = new Accounts(commands, clock);
  const files = new FileTransfer(context, accounts);
  const server = Fastify({ exposeHeadRoutes: false, return503OnClosing: false });
  server.removeAllContentTypeParsers();
  // Whoever takes a body reads it from the socket.
  server.addContentTypeParser("*", (_request, _body, done) => {
    done(null);
  });
  observe(server, sendFileError);
  server.decorateRequest("caller", null);
  const admit = letIn(context);
  server.addHook("onRequest", async (request, reply) => {
    const aim = aims.get(request.raw);
    if (aim === undefined) throw new PerdureError("internal", "A request without an aim");
    const admitted = await admit(request.raw, aim);
    if (admitted.kind === "refused") {
      return reply
        .code(admitted.status)
        .type("application/json")
        .send(JSON.stringify(admitted.body));
    }
    request.caller = { ...admitted.caller, user: userIn(request.headers) };
  });

  const callerOf = ({ caller }: { readonly caller: Caller | null }): Caller => {
    if (caller === null) throw new PerdureError("internal", "A request that nobody has let in");
    return caller;
  };
  const viewOf = ({ target }: Caller) => commands.show(target);

  server.get("/health", async (request, reply) => {
    const { target } = callerOf(request);
    const { state } = await commands.show(target);
    if (state !== "awake") await commands.execute({ kind: "wake", ...target });
    return reply.code(204).send();
  });

  server.get("/envs", (request) => commands.environment(callerOf(request).target));

  server.get("/metrics", async (request, reply) => {
    const view = await viewOf(callerOf(request));
    const metric = await measure(commands, clock, view, untilGone(reply, closing));
    return {
      ts: metric.timestampUnix,
      cpu_count: metric.cpuCount,
      cpu_used_pct: metric.cpuUsedPct,
      mem_total: metric.memTotal,
      mem_used: metric.memUsed,
      mem_cache: metric.memCache,
      mem_total_mib: Math.round(metric.memTotal / MIB),
      mem_used_mib: Math.round(metric.memUsed / MIB),
      disk_used: metric.diskUsed,
      disk_total: metric.diskTotal,
    };
  });

  server.get("/files", async (request, reply) => {
    const { target, user } = callerOf(request);
    const { path, username } = parse(fileQuerySchema, request.query, "query");
    const file = await files.read(target, username ?? user, path);
    return reply
      .headers({
        "content-length": file.size,
        "content-disposition": `inline; filename*=UTF-8''${encodeURIComponent(file.name)}`,
        "cache-control": "no-store",
      })
      .type("application/octet-stream")
      .send(Readable.from(file.bytes, { objectMode: false }));
  });

  server.post("/files", async (request) => {
    const { target, user } = callerOf(request);
    const { path, username } = parse(fileQuerySchema, request.query, "query");
    return files.write(target, username ?? user, path, request.raw);
  });

  const caller = ({ values }: HandlerContext): Caller =>
    callerOf({ caller: values.get(callerKey) });
  const router = createConnectRouter({
    grpc: false,
    grpcWeb: false,
    acceptCompression: [compressionGzip, compressionBrotli],
    readMaxBytes: MESSAGE_BYTES_MAX,
    maxTimeoutMs: TIMEOUT_MS_MAX,
    interceptors: [inConnectErrors],
  });
  router.service(Process, processService(context, caller));
  router.service(Filesystem, filesystemService(context, accounts, caller));
  for (const handler of router.handlers) {
    server.post(handler.requestPath, (request, reply) => {
      const values = createContextValues().set(callerKey, callerOf(request));
      const { raw } = reply;
      // What hooks have set, for pages of other origins.
      for (const [name, value] of Object.entries(reply.getHeaders())) {
        if (value !== undefined) raw.setHeader(name, value);
      }
      void reply.hijack();
      handler(universalRequestFromNodeRequest(request.raw, raw, undefined, values))
        .then((answer) => universalResponseToNodeResponse(answer, raw))
        // Whoever called has gone.
        .catch(() => raw.destroy());
    });
  }
  server.setNotFoundHandler((request, reply) => {
    sendCode(reply, 404, `There is no route ${request.method} ${request.url.split("?")[0] ?? ""}`);
  });

  return {
    server,
    handle: (request, response, aim) => {
      aims.set(request, aim);
      server.routing(request, response);
    },
  };
}

/**
 * Errors of every kind leave as those that clients know. A caller's deadline ends its call also where the guest never
 * answers: what was begun is left to the link's own deadline.
 */
const inConnectErrors: Interceptor = (next) => async (request) => {
  try {
    const answer = await orAborted(next(request), request.signal);
    return answer.stream ? { ...answer, message: eachOf(answer.message, request.signal) } : answer;
  } catch (error) {
    throw toConnectError(error);
  }
};

async function* eachOf<T>(messages: AsyncIterable<T>, signal: AbortSignal): AsyncGenerator<T> {
  const from = messages[Symbol.asyncIterator]();
  try {
    for (;;) {
      const next = await orAborted(from.next(), signal);
      if (next.done === true) return;
      yield next.value;
    }
  } catch (error) {
    throw toConnectError(error);
  } finally {
    void from.return?.();
  }
}

/** @throws the signal's reason, and what `work` throws */
async function orAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const aborted = Promise.withResolvers<never>();
  const stop = (): void => aborted.reject(signal.reason);
  signal.addEventListener("abort", stop, { once: true });
  try {
    // What ends it otherwise has its turn: it may know better why.
    if (signal.aborted) setImmediate(stop);
    return await Promise.race([work, aborted.promise]);
  } finally {
    signal.removeEventListener("abort", stop);
    aborted.promise.catch(() => undefined);
    work.catch(() => undefined);
  }
}
