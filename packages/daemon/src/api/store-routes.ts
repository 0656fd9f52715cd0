/** What is asked of an agent's stored files. */
import { Readable } from "node:stream";
import type { FastifyInstance } from "fastify";
import { PerdureError, routes } from "@perdure/protocol";
import type { VerifyEvent } from "@perdure/protocol";
import type { RouteContext } from "./context.ts";
import { serve } from "./serve.ts";

export function storeRoutes(server: FastifyInstance, { commands, closing }: RouteContext): void {
  // A caller that goes away ends the reading: nothing was changed, so nothing is half done.
  serve(server, routes.verify, async ({ tenant, params, query, reply }) => {
    const gone = new AbortController();
    reply.raw.once("close", () => {
      gone.abort();
    });
    const signal = AbortSignal.any([gone.signal, closing]);
    const events = await commands.verify({ tenant, ...params, ...query }, signal);
    const lines = Readable.from(verifyLines(events, closing), { objectMode: false });
    return reply.type("application/x-ndjson").header("cache-control", "no-store").send(lines);
  });
}

async function* verifyLines(
  events: AsyncIterable<VerifyEvent>,
  closing: AbortSignal,
): AsyncGenerator<string> {
  const line = (event: VerifyEvent): string => `${JSON.stringify(event)}\n`;
  try {
    for await (const event of events) yield line(event);
  } catch (error) {
    const told = closing.aborted
      ? new PerdureError("daemon_unreachable", "The daemon stops; the verification ends here", {
          hint: "Nothing was changed; run it again",
        })
      : PerdureError.from(error);
    yield line({ type: "error", error: told.toJSON() });
  }
}
