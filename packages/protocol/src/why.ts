/** Why an agent is awake or not, what happens next by itself, and what would change it. */
import { z } from "zod";
import { agentStateSchema } from "./agent.ts";
import { momentSchema } from "./rest.ts";

export const whyReasonSchema = z.object({
  /**
   * Awake: `caller`, `busy`, `hold`, `wait-near`, `paused`, `silent`, `idle-off`, `quiet`. Not awake: `asked`,
   * `idle`, `end`, `stopped`, `quarantined`, `failed`, `changing`. Any: `size-pending`, `disk-pending`.
   */
  reason: z.string(),
  detail: z.string(),
  /** When it ends by itself, where that is known. */
  untilMs: momentSchema.nullable(),
});
export type WhyReason = z.infer<typeof whyReasonSchema>;

/** `GET /v1/agents/:agent/why` */
export const whySchema = z.object({
  state: agentStateSchema,
  /** Since when. */
  sinceMs: momentSchema,
  /** What keeps it in this state, most important first. */
  reasons: z.array(whyReasonSchema),
  /** What happens next by itself, where something does. */
  next: z
    .object({ what: z.enum(["sleep", "wake", "checkpoint", "remove"]), atMs: momentSchema })
    .nullable(),
  /** What would change it, as commands. */
  ways: z.array(z.string()),
});
/** Why an agent is awake or not, and what would change that. */
export type Why = z.infer<typeof whySchema>;
