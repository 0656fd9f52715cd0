/** Programs in an agent: start, list, read, feed, signal. */
import { Readable } from "node:stream";
import type { FastifyInstance } from "fastify";
import {
  apiLimits,
  execRequestSchema,
  outputQuerySchema,
  signalRequestSchema,
  stdinQuerySchema,
} from "@perdure/protocol";
import type { RouteContext } from "./context.ts";
import { bodyOf, processTargetOf, queryOf, targetOf } from "./context.ts";
import { checkExecSize } from "./exec-size.ts";
import { outputLines } from "./output-stream.ts";

export function processRoutes(server: FastifyInstance, { commands, closing }: RouteContext): void {
  server.post("/v1/agents/:agent/exec", async (request, reply) => {
    const target = targetOf(request);
    const body = bodyOf(request, execRequestSchema);
    checkExecSize(target.agent, body);
    void reply.code(201);
    return commands.execute({ kind: "exec", ...target, ...body });
  });

  server.get("/v1/agents/:agent/processes", async (request) => ({
    processes: await commands.processes(targetOf(request)),
  }));

  // The reader's disconnect ends the reading and nothing else.
  server.get("/v1/agents/:agent/processes/:process/output", async (request, reply) => {
    const target = processTargetOf(request);
    const { offset } = queryOf(request, outputQuerySchema);
    const gone = new AbortController();
    reply.raw.once("close", () => {
      gone.abort();
    });
    const pieces = await commands.output(target, offset, AbortSignal.any([gone.signal, closing]));
    const lines = Readable.from(outputLines(pieces, offset, closing), { objectMode: false });
    return reply.type("application/x-ndjson").header("cache-control", "no-store").send(lines);
  });

  server.post("/v1/agents/:agent/processes/:process/signal", async (request, reply) => {
    const target = processTargetOf(request);
    await commands.execute({ kind: "signal", ...target, ...bodyOf(request, signalRequestSchema) });
    return reply.code(204).send();
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
    scope.post("/v1/agents/:agent/processes/:process/stdin", async (request, reply) => {
      const target = processTargetOf(request);
      const { end } = queryOf(request, stdinQuerySchema);
      const bytes = Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0);
      await commands.writeStdin(target, bytes, end);
      return reply.code(204).send();
    });
    done();
  });
}
