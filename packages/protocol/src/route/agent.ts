/** Agents and their verbs. */
import { z } from "zod";
import { agentViewSchema } from "../agent.ts";
import {
  agentRefSchema,
  checkpointRefSchema,
  checkpointRequestSchema,
  checkpointsResponseSchema,
  checkpointViewSchema,
  createRequestSchema,
  forkRequestSchema,
  forkResponseSchema,
  hotRequestSchema,
  hotViewSchema,
  letOutSchema,
  listQuerySchema,
  listResponseSchema,
  pageQuerySchema,
  recoverRequestSchema,
  reportResponseSchema,
  restoreRequestSchema,
} from "../api.ts";
import { json } from "./route.ts";
import type { ApiRoute } from "./route.ts";

const agent = z.object({ agent: agentRefSchema });

/** `POST /v1/agents/:agent/VERB` without settings. */
function verb<const V extends string, S extends z.ZodType>(name: V, summary: string, answer: S) {
  return {
    method: "POST",
    path: `/v1/agents/:agent/${name}`,
    summary,
    params: agent,
    status: 200,
    answers: [json(answer)],
    mutates: true,
    scope: "use",
  } as const;
}

export const agentRoutes = {
  list: {
    method: "GET",
    path: "/v1/agents",
    summary: "List agents by name, page by page.",
    query: listQuerySchema,
    status: 200,
    answers: [json(listResponseSchema)],
    mutates: false,
    scope: "read",
    narrowed: true,
  },
  create: {
    method: "POST",
    path: "/v1/agents",
    summary: "Create an agent and wake it for the first time.",
    body: json(createRequestSchema),
    status: 201,
    answers: [json(agentViewSchema)],
    mutates: true,
    scope: "admin",
    narrowed: true,
  },
  show: {
    method: "GET",
    path: "/v1/agents/:agent",
    summary: "Show an agent as it is now; never waits for what it is doing.",
    params: agent,
    status: 200,
    answers: [json(agentViewSchema)],
    mutates: false,
    scope: "read",
  },
  remove: {
    method: "DELETE",
    path: "/v1/agents/:agent",
    summary: "Remove an agent: its key is destroyed, then its files. There is no way back.",
    params: agent,
    status: 200,
    answers: [json(agentViewSchema)],
    mutates: true,
    scope: "admin",
  },
  sleep: {
    ...verb(
      "sleep",
      "Keep memory and disk in a checkpoint and end the VM; does nothing where it is asleep.",
      agentViewSchema,
    ),
    repeat: "again",
  },
  wake: {
    ...verb(
      "wake",
      "Wake the agent exactly where it was; does nothing where it is awake.",
      letOutSchema,
    ),
    repeat: "again",
  },
  stop: {
    ...verb("stop", "Shut the agent down and keep its disk; programs end.", agentViewSchema),
    repeat: "again",
    scope: "admin",
  },
  start: {
    ...verb("start", "Boot the agent from its disk, without memory.", letOutSchema),
    repeat: "again",
    scope: "admin",
  },
  recover: {
    ...verb(
      "recover",
      "Bring a failed agent back from its last checkpoint or its newest disk; the other is kept.",
      letOutSchema,
    ),
    body: json(recoverRequestSchema),
    scope: "admin",
  },
  checkpoint: {
    ...verb(
      "checkpoint",
      "Take a checkpoint of the awake agent, which goes on; a name makes it kept.",
      checkpointViewSchema,
    ),
    body: json(checkpointRequestSchema),
    scope: "admin",
  },
  restore: {
    ...verb(
      "restore",
      "Go back to a checkpoint that is kept; what the agent is now is kept first.",
      letOutSchema,
    ),
    body: json(restoreRequestSchema),
    scope: "admin",
  },
  fork: {
    ...verb(
      "fork",
      "Make new agents that go on from here, or from a checkpoint, each under an identity of its own.",
      forkResponseSchema,
    ),
    body: json(forkRequestSchema),
    status: 201,
    scope: "admin",
  },
  hot: {
    ...verb(
      "hot",
      "Keep machines ready that hold a checkpoint's state: the next forks or restores of it take them.",
      hotViewSchema,
    ),
    body: json(hotRequestSchema),
    scope: "admin",
  },
  checkpoints: {
    method: "GET",
    path: "/v1/agents/:agent/checkpoints",
    summary: "List an agent's checkpoints, oldest first, page by page.",
    params: agent,
    query: pageQuerySchema,
    status: 200,
    answers: [json(checkpointsResponseSchema)],
    mutates: false,
    scope: "read",
  },
  drop: {
    method: "DELETE",
    path: "/v1/agents/:agent/checkpoints/:checkpoint",
    summary: "Forget a kept checkpoint and free what nothing else needs.",
    params: z.object({ agent: agentRefSchema, checkpoint: checkpointRefSchema }),
    status: 200,
    answers: [json(agentViewSchema)],
    mutates: true,
    scope: "admin",
  },
  report: {
    method: "GET",
    path: "/v1/agents/:agent/report",
    summary: "What the wake gate found when the agent was last let out; null where it never was.",
    params: agent,
    status: 200,
    answers: [json(reportResponseSchema)],
    mutates: false,
    scope: "read",
  },
} as const satisfies Record<string, ApiRoute>;
