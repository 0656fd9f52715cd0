/** Programs in an agent: start, list, read, feed, signal. */
import { Readable } from "node:stream";
import type { FastifyInstance } from "fastify";
import { apiLimits, routes } from "@perdure/protocol";
import { firstPage } from "../core/page.ts";
import { serveAttachment } from "./attachment.ts";
import type { RouteContext } from "./context.ts";
import { checkExecSize } from "./exec-size.ts";
import { untilGone } from "./gone.ts";
import { sendLines } from "./json-lines.ts";
import { outputLines } from "./output-stream.ts";
import { serve } from "./serve.ts";

export function processRoutes(server: FastifyInstance, context: RouteContext): void {
  const { commands, closing, upgrades, pingMs } = context;
  serve(server, routes.exec, async ({ tenant, params, body }) => {
    checkExecSize(params.agent, body);
    return commands.execute({ kind: "exec", tenant, ...params, ...body });
  });

  serve(server, routes.processes, async ({ tenant, params, query: { after = 0, limit } }) => {
    const found = await commands.processes({ tenant, ...params });
    const rest = found.filter(({ process }) => process > after);
    const { page, next } = firstPage(rest, limit, ({ process }) => process);
    return { processes: [...page], next };
  });

  // The reader's disconnect ends the reading and nothing else.
  serve(server, routes.output, async ({ tenant, params, query: { offset }, reply }) => {
    const target = { tenant, ...params };
    const pieces = await commands.output(target, offset, untilGone(reply, closing));
    const lines = Readable.from(outputLines(pieces, offset, closing), { objectMode: false });
    return sendLines(reply, lines);
  });

  serve(server, routes.signal, async ({ tenant, params, body }) => {
    await commands.execute({ kind: "signal", tenant, ...params, ...body });
  });

  serve(server, routes.resize, async ({ tenant, params, body }) => {
    await commands.execute({ kind: "resize", tenant, ...params, ...body });
  });

  serve(server, routes.attach, async ({ tenant, params, query, request, reply }) => {
    const { wakes, ...rest } = query;
    const socket = await upgrades.accept(request.raw);
    reply.hijack();
    const target = { tenant, ...params, wakes };
    await serveAttachment(socket, { commands, target, ...rest, closing, pingMs });
  });

  server.register((scope, _options, done) => {
    scope.removeAllContentTypeParsers();
    scope.addContentTypeParser(
      "*",
      { parseAs: "buffer", bodyLimit: apiLimits.stdinChunkBytesMax },
      (_request, body, parsed) => {
        parsed(null, body);
      },
    );
    serve(scope, routes.stdin, async ({ tenant, params, query: { end }, request, reply }) => {
      const bytes = Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0);
      const gone = untilGone(reply, closing);
      await commands.writeStdin({ tenant, ...params }, bytes, end, gone);
    });
    done();
  });
}
