/** TCP ports inside an agent. */
import { z } from "zod";
import { agentRefSchema } from "../api.ts";
import { connectQuerySchema, portRefSchema, portRequestSchema, portViewSchema } from "../port.ts";
import { json } from "./route.ts";
import type { ApiRoute } from "./route.ts";

const port = z.object({ agent: agentRefSchema, port: portRefSchema });

export const portRoutes = {
  connect: {
    method: "GET",
    path: "/v1/agents/:agent/ports/:port/connect",
    summary:
      "A connection to a TCP port inside over a WebSocket, which wakes the agent first: see connect.md.",
    params: port,
    query: connectQuerySchema,
    status: 101,
    answers: [],
    mutates: false,
    scope: "use",
  },
  setPort: {
    method: "PUT",
    path: "/v1/agents/:agent/ports/:port",
    summary: "Say who may visit a port through its preview host, and answer its URL and token.",
    params: port,
    body: json(portRequestSchema),
    status: 200,
    answers: [json(portViewSchema)],
    mutates: true,
    repeat: "unfinished",
    scope: "admin",
  },
} as const satisfies Record<string, ApiRoute>;
