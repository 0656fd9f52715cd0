/** The event log: as pages, or as server-sent events that go on where a reader left off. */
import { Readable } from "node:stream";
import type { FastifyInstance } from "fastify";
import { routes } from "@perdure/protocol";
import type { FollowedEvent } from "@perdure/protocol";
import type { Followed } from "../core/event-log.ts";
import type { RouteContext } from "./context.ts";
import { untilGone } from "./gone.ts";
import { serve } from "./serve.ts";

/** What a browser waits before it connects again. */
const RETRY_MS = 1000;

export function eventRoutes(server: FastifyInstance, context: RouteContext): void {
  const { events, reach, closing } = context;
  serve(server, routes.events, async ({ principal, query, headers, reply }) => {
    const { agent, kind, follow, limit } = query;
    const { tenant } = principal;
    const only = agent === undefined ? undefined : await reach.assert(principal, agent);
    if (only !== undefined) await events.assertTellsOf(tenant, only);
    const filter = {
      tenant,
      agents: only === undefined ? principal.agents : [only],
      kinds: kind ?? null,
    };
    // A browser that connects again sends the URL of its first call, and where it is in the header.
    const after = headers["last-event-id"] ?? query.after ?? null;
    if (!follow) return events.page(filter, after ?? 0, limit);
    const followed = await events.follow(filter, after, untilGone(reply, closing));
    const blocks = Readable.from(serverSentEvents(followed), { objectMode: false });
    return reply.type("text/event-stream").header("cache-control", "no-store").send(blocks);
  });
}

async function* serverSentEvents(followed: AsyncIterable<Followed>): AsyncGenerator<string> {
  yield `retry: ${RETRY_MS}\n\n`;
  for await (const told of followed) {
    switch (told.type) {
      case "event":
        yield block(told.event.id, told.event);
        break;
      case "gap":
        yield block(told.gap.to, told.gap);
        break;
      case "position":
        // No event: it only moves where the reader goes on, and shows that the daemon is there.
        yield `: ${told.position}\nid: ${told.position}\n\n`;
    }
  }
}

function block(id: number, event: FollowedEvent): string {
  return `id: ${id}\ndata: ${JSON.stringify(event)}\n\n`;
}
