/**
 * Files of an agent, as bytes. Facts about a file that is read are in headers; its length is not
 * announced as Content-Length, because it may grow or shrink while it is read.
 */
import { Readable } from "node:stream";
import type { FastifyInstance } from "fastify";
import { apiLimits, fileHeaders, PerdureError, routes } from "@perdure/protocol";
import type { RouteContext } from "./context.ts";
import { serve } from "./serve.ts";

export function fileRoutes(server: FastifyInstance, { commands }: RouteContext): void {
  serve(server, routes.readFile, async ({ tenant, params, query, reply }) => {
    const { facts, bytes } = await commands.readFile({ tenant, ...params, ...query });
    return reply
      .headers({
        [fileHeaders.size]: facts.size,
        [fileHeaders.mode]: (facts.mode & 0o7777).toString(8),
        [fileHeaders.uid]: facts.uid,
        [fileHeaders.gid]: facts.gid,
        [fileHeaders.mtimeMs]: facts.mtimeMs,
        "cache-control": "no-store",
      })
      .type("application/octet-stream")
      .send(Readable.from(bytes, { objectMode: false }));
  });

  server.register((scope, _options, done) => {
    scope.removeAllContentTypeParsers();
    scope.addContentTypeParser("*", (_request, body, parsed) => {
      parsed(null, body);
    });
    serve(scope, routes.writeFile, async ({ tenant, params, query, request, upload }) => {
      const size = announcedSize(request.headers["content-length"]);
      const file = { tenant, ...params, ...query, mode: parseInt(query.mode, 8), size };
      await commands.writeFile(file, upload);
    });
    done();
  });
}

function announcedSize(header: string | undefined): number {
  if (header === undefined) {
    throw new PerdureError("bad_request", `Cannot write the file: its length is not announced`, {
      hint: 'Send a "content-length" header instead of chunks.',
      details: { field: "headers.content-length" },
    });
  }
  const size = Number(header);
  if (size <= apiLimits.fileBytesMax) return size;
  throw new PerdureError(
    "too_large",
    `Cannot write the file: ${size} bytes are more than ${apiLimits.fileBytesMax}`,
  );
}
