/** Files of an agent, as bytes. */
import { z } from "zod";
import { agentRefSchema, fileHeaders, fileQuerySchema } from "../api.ts";
import { bytes } from "./route.ts";
import type { ApiRoute } from "./route.ts";

const agent = z.object({ agent: agentRefSchema });
const decimal = z.string().regex(/^-?[0-9]+(\.[0-9]+)?$/);

export const fileRoutes = {
  readFile: {
    method: "GET",
    path: "/v1/agents/:agent/files",
    summary: "Read a file; symbolic links are never followed.",
    params: agent,
    query: fileQuerySchema.omit({ mode: true }),
    status: 200,
    answers: [bytes],
    answerHeaders: z.object({
      [fileHeaders.size]: decimal,
      [fileHeaders.mode]: z.string().regex(/^[0-7]{1,4}$/),
      [fileHeaders.uid]: decimal,
      [fileHeaders.gid]: decimal,
      [fileHeaders.mtimeMs]: decimal,
    }),
    mutates: false,
    scope: "use",
  },
  writeFile: {
    method: "PUT",
    path: "/v1/agents/:agent/files",
    summary: "Write a file: whole, or not at all. Its length must be announced.",
    params: agent,
    query: fileQuerySchema,
    body: bytes,
    status: 204,
    answers: [],
    mutates: true,
    repeat: "again",
    scope: "use",
  },
} as const satisfies Record<string, ApiRoute>;
