/** What `gc` freed. */
import { z } from "zod";
import { agentIdSchema } from "./id.ts";

/** `POST /v1/agents/:agent/gc` */
export const freedSchema = z.object({
  agent: agentIdSchema,
  name: z.string(),
  /** Bytes on disk of the files that were removed. */
  freedBytes: z.number().int().nonnegative(),
  /** What the agent's files take now. */
  storedBytes: z.number().int().nonnegative(),
  /** Of its newest disk. */
  layers: z.object({
    before: z.number().int().nonnegative(),
    after: z.number().int().nonnegative(),
  }),
  /** Why disk layers were not merged that could have been; null: nothing was in the way. */
  notice: z.string().nullable(),
});
export type Freed = z.infer<typeof freedSchema>;
