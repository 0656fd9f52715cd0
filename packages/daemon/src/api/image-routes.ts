/** Images: made from archives and recipes, listed, removed. */
import { Readable } from "node:stream";
import type { FastifyInstance, FastifyReply } from "fastify";
import { PerdureError, routes } from "@perdure/protocol";
import type { ImageEvent } from "@perdure/protocol";
import type { RouteContext } from "./context.ts";
import { serve } from "./serve.ts";

export function imageRoutes(server: FastifyInstance, { images, closing }: RouteContext): void {
  serve(server, routes.images, async () => ({ images: await images.images() }));
  serve(server, routes.image, ({ params }) => images.image(params.image));
  serve(server, routes.removeImage, ({ params }) => images.removeImage(params.image));

  // A caller that goes away ends the work, and nothing of it is left.
  serve(server, routes.buildImage, async ({ body, reply }) => {
    const events = await images.buildImage(body.name, body.recipe, untilGone(reply, closing));
    return sendEvents(reply, events, closing);
  });

  server.register((scope, _options, done) => {
    scope.removeAllContentTypeParsers();
    scope.addContentTypeParser("*", (_request, body, parsed) => {
      parsed(null, body);
    });
    serve(scope, routes.importImage, async ({ query, upload, reply }) => {
      const { name, ref, start } = query;
      const wish = { name, start, ...(ref === undefined ? {} : { reference: ref }) };
      const events = await images.importImage(wish, upload, untilGone(reply, closing));
      return sendEvents(reply, events, closing);
    });
    done();
  });
}

function untilGone(reply: FastifyReply, closing: AbortSignal): AbortSignal {
  const gone = new AbortController();
  reply.raw.once("close", () => {
    gone.abort();
  });
  return AbortSignal.any([gone.signal, closing]);
}

function sendEvents(
  reply: FastifyReply,
  events: AsyncIterable<ImageEvent>,
  closing: AbortSignal,
): FastifyReply {
  const lines = Readable.from(eventLines(events, closing), { objectMode: false });
  return reply.type("application/x-ndjson").header("cache-control", "no-store").send(lines);
}

async function* eventLines(
  events: AsyncIterable<ImageEvent>,
  closing: AbortSignal,
): AsyncGenerator<string> {
  const line = (event: ImageEvent): string => `${JSON.stringify(event)}\n`;
  try {
    for await (const event of events) yield line(event);
  } catch (error) {
    const told = closing.aborted
      ? new PerdureError("daemon_unreachable", "The daemon stops; the image is not made", {
          hint: "Nothing is left of it; try again.",
        })
      : PerdureError.from(error);
    yield line({ type: "error", error: told.toJSON() });
  }
}
