/** Images: made from archives and recipes, listed, removed. */
import type { FastifyInstance, FastifyReply } from "fastify";
import { PerdureError, routes } from "@perdure/protocol";
import type { ImageEvent } from "@perdure/protocol";
import type { RouteContext } from "./context.ts";
import { untilGone } from "./gone.ts";
import { jsonLines, sendLines } from "./json-lines.ts";
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

const stopsMaking = new PerdureError(
  "daemon_unreachable",
  "The daemon stops; the image is not made",
  { hint: "Nothing is left of it; try again." },
);

function sendEvents(
  reply: FastifyReply,
  events: AsyncIterable<ImageEvent>,
  closing: AbortSignal,
): FastifyReply {
  const lines = jsonLines({
    values: events,
    encode: (event) => event,
    isLast: ({ type }) => type === "image",
    closing: { signal: closing, last: { type: "error", error: stopsMaking } },
  });
  return sendLines(reply, lines);
}
