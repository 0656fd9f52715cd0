/** The way out of an agent: what gets out, and what did. */
import { z } from "zod";
import { agentRefSchema, pageQuerySchema } from "../api.ts";
import { connectionsResponseSchema, egressPolicySchema, egressViewSchema } from "../egress.ts";
import { json } from "./route.ts";
import type { ApiRoute } from "./route.ts";

const agent = z.object({ agent: agentRefSchema });

export const egressRoutes = {
  egress: {
    method: "GET",
    path: "/v1/agents/:agent/egress",
    summary: "Which connections to elsewhere the agent may make, and whether it can.",
    params: agent,
    status: 200,
    answers: [json(egressViewSchema)],
    mutates: false,
    scope: "read",
  },
  setEgress: {
    method: "PUT",
    path: "/v1/agents/:agent/egress",
    summary:
      "Say which connections to elsewhere the agent may make; open ones that it denies are broken off at once.",
    params: agent,
    body: json(egressPolicySchema),
    status: 200,
    answers: [json(egressViewSchema)],
    mutates: true,
    repeat: "again",
    scope: "admin",
  },
  connections: {
    method: "GET",
    path: "/v1/agents/:agent/connections",
    summary: "List the agent's connections to elsewhere, oldest first, page by page.",
    params: agent,
    query: pageQuerySchema,
    status: 200,
    answers: [json(connectionsResponseSchema)],
    mutates: false,
    scope: "read",
  },
} as const satisfies Record<string, ApiRoute>;
