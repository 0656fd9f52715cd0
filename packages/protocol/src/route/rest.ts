/** When agents rest: settings, holds, why, quarantine. */
import { z } from "zod";
import { agentViewSchema } from "../agent.ts";
import { agentRefSchema, configureRequestSchema, holdRefSchema } from "../api.ts";
import { holdRequestSchema, holdSchema, quarantineRequestSchema } from "../rest.ts";
import { whySchema } from "../why.ts";
import { json } from "./route.ts";
import type { ApiRoute } from "./route.ts";

const agent = z.object({ agent: agentRefSchema });

export const restRoutes = {
  configure: {
    method: "PATCH",
    path: "/v1/agents/:agent",
    summary: "Change settings of an agent; what is absent stays as it is.",
    params: agent,
    body: json(configureRequestSchema),
    status: 200,
    answers: [json(agentViewSchema)],
    mutates: true,
    scope: "admin",
  },
  why: {
    method: "GET",
    path: "/v1/agents/:agent/why",
    summary: "Say why the agent is awake or not, what happens next, and what would change that.",
    params: agent,
    status: 200,
    answers: [json(whySchema)],
    mutates: false,
    scope: "read",
  },
  hold: {
    method: "POST",
    path: "/v1/agents/:agent/holds",
    summary: "Keep the agent awake for a time though it is idle; wakes it where it is asleep.",
    params: agent,
    body: json(holdRequestSchema),
    status: 201,
    answers: [json(holdSchema)],
    mutates: true,
    scope: "use",
  },
  endHold: {
    method: "DELETE",
    path: "/v1/agents/:agent/holds/:hold",
    summary: "End a hold before its time.",
    params: z.object({ agent: agentRefSchema, hold: holdRefSchema }),
    status: 200,
    answers: [json(agentViewSchema)],
    mutates: true,
    scope: "use",
  },
  quarantine: {
    method: "POST",
    path: "/v1/agents/:agent/quarantine",
    summary:
      "Put the agent to sleep, or end it where it cannot be, and let nobody wake it before it is released; it can still be forked.",
    params: agent,
    body: json(quarantineRequestSchema),
    status: 200,
    answers: [json(agentViewSchema)],
    mutates: true,
    scope: "admin",
  },
  release: {
    method: "POST",
    path: "/v1/agents/:agent/release",
    summary: "Let a quarantined agent go on as it was; it is not woken yet.",
    params: agent,
    status: 200,
    answers: [json(agentViewSchema)],
    mutates: true,
    scope: "admin",
  },
} as const satisfies Record<string, ApiRoute>;
