/** What an agent has stored. */
import { z } from "zod";
import { agentRefSchema } from "../api.ts";
import { verifyEventSchema, verifyQuerySchema } from "../verify.ts";
import { lines } from "./route.ts";
import type { ApiRoute } from "./route.ts";

const agent = z.object({ agent: agentRefSchema });

export const storeRoutes = {
  verify: {
    method: "GET",
    path: "/v1/agents/:agent/verify",
    summary:
      "Read all that the agent's checkpoints name and tell what is damaged; changes nothing.",
    params: agent,
    query: verifyQuerySchema,
    status: 200,
    answers: [lines(verifyEventSchema)],
    mutates: false,
    scope: "read",
  },
} as const satisfies Record<string, ApiRoute>;
