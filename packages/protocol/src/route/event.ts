/** The event log. */
import {
  eventPageSchema,
  eventsHeadersSchema,
  eventsQuerySchema,
  followedEventSchema,
} from "../event.ts";
import { json, serverSentEvents } from "./route.ts";
import type { ApiRoute } from "./route.ts";

export const eventRoutes = {
  events: {
    method: "GET",
    path: "/v1/events",
    summary:
      "Follow what becomes of agents as server-sent events; `follow=false` answers a page of the log.",
    query: eventsQuerySchema,
    headers: eventsHeadersSchema,
    status: 200,
    answers: [serverSentEvents(followedEventSchema), json(eventPageSchema)],
    mutates: false,
    scope: "read",
    narrowed: true,
  },
} as const satisfies Record<string, ApiRoute>;
