/** What an agent has stored. */
import { z } from "zod";
import { agentRefSchema } from "../api.ts";
import { freedSchema } from "../gc.ts";
import { digestSchema } from "../id.ts";
import {
  exportQuerySchema,
  importQuerySchema,
  importResponseSchema,
  passphraseHeadersSchema,
  SIGNER_HEADER,
} from "../transfer.ts";
import { verifyEventSchema, verifyQuerySchema } from "../verify.ts";
import { bytes, json, lines } from "./route.ts";
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
  export: {
    method: "GET",
    path: "/v1/agents/:agent/export",
    summary:
      "Read the agent as one file: of a sleeping or stopped one, or from a named checkpoint.",
    params: agent,
    query: exportQuerySchema,
    headers: passphraseHeadersSchema,
    status: 200,
    answers: [bytes],
    answerHeaders: z.object({ [SIGNER_HEADER]: digestSchema }),
    mutates: false,
    scope: "admin",
  },
  import: {
    method: "POST",
    path: "/v1/agents/import",
    summary: "Make a new agent from a file that was exported; it is not woken yet.",
    query: importQuerySchema,
    headers: passphraseHeadersSchema,
    body: bytes,
    status: 201,
    answers: [json(importResponseSchema)],
    mutates: true,
    // The name is taken once: a repeat whose first answer is not known makes no second agent.
    repeat: "again",
    scope: "admin",
  },
  gc: {
    method: "POST",
    path: "/v1/agents/:agent/gc",
    summary: "Merge disk layers where that makes fewer, and remove what no checkpoint needs.",
    params: agent,
    status: 200,
    answers: [json(freedSchema)],
    mutates: true,
    scope: "use",
  },
} as const satisfies Record<string, ApiRoute>;
