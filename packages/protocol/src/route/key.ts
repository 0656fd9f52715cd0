/** API keys. */
import { z } from "zod";
import {
  createdKeySchema,
  createKeyRequestSchema,
  keyRefSchema,
  keysQuerySchema,
  keysResponseSchema,
  keyViewSchema,
} from "../key.ts";
import { json } from "./route.ts";
import type { ApiRoute } from "./route.ts";

export const keyRoutes = {
  createKey: {
    method: "POST",
    path: "/v1/keys",
    summary: "Make an API key; its token is shown this once.",
    body: json(createKeyRequestSchema),
    status: 201,
    answers: [json(createdKeySchema)],
    mutates: true,
    repeat: "unfinished",
    scope: "admin",
  },
  keys: {
    method: "GET",
    path: "/v1/keys",
    summary: "List the API keys by name, page by page.",
    query: keysQuerySchema,
    status: 200,
    answers: [json(keysResponseSchema)],
    mutates: false,
    scope: "admin",
  },
  revokeKey: {
    method: "DELETE",
    path: "/v1/keys/:key",
    summary: "End an API key at once: connections that were opened with it are cut.",
    params: z.object({ key: keyRefSchema }),
    status: 200,
    answers: [json(keyViewSchema)],
    mutates: true,
    scope: "admin",
  },
} as const satisfies Record<string, ApiRoute>;
