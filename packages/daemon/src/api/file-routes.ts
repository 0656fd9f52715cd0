/**
 * Files of an agent, as bytes. Facts about a file that is read are in headers; its length is not
 * announced as Content-Length, because it may grow or shrink while it is read.
 */
import { Readable } from "node:stream";
import type { FastifyInstance } from "fastify";
import { apiLimits, fileHeaders, PerdureError, routes } from "@perdure/protocol";
import type { PathTarget } from "../core/file-command.ts";
import type { RouteContext } from "./context.ts";
import { contentRange, parseRange } from "./range.ts";
import { serve } from "./serve.ts";

export function fileRoutes(server: FastifyInstance, { commands }: RouteContext): void {
  serve(server, routes.readFile, async ({ tenant, params, query, request, reply }) => {
    const target = { tenant, ...params, ...query };
    const { range: header, "if-range": ifRange } = request.headers;
    // There is no validator that it could name.
    const asked = ifRange === undefined ? parseRange(header) : null;
    const range = asked?.kind === "suffix" ? await lastBytes(target, asked.length) : asked;
    const { facts, bytes } = await commands.readFile(
      range === null ? target : { ...target, range },
    );
    void reply.headers({
      [fileHeaders.size]: facts.size,
      [fileHeaders.mode]: (facts.mode & 0o7777).toString(8),
      [fileHeaders.uid]: facts.uid,
      [fileHeaders.gid]: facts.gid,
      [fileHeaders.mtimeMs]: facts.mtimeMs,
      "accept-ranges": "bytes",
      "cache-control": "no-store",
    });
    const body = Readable.from(bytes, { objectMode: false });
    if (range !== null) {
      try {
        void reply.header("content-range", contentRange(query.path, facts.size, range)).code(206);
      } catch (error) {
        body.destroy();
        void reply.header("content-range", `bytes */${facts.size}`);
        throw error;
      }
    }
    return reply.type("application/octet-stream").send(body);
  });

  async function lastBytes(target: PathTarget, length: number) {
    const { size } = await commands.stat(target);
    if (size === 0) return null;
    const offset = Math.max(0, size - length);
    return { offset, length: size - offset };
  }

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
