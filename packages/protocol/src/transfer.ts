/** An agent as one file: what is asked of `export` and `import`, and what they answer. */
import { z } from "zod";
import { agentNameSchema, agentViewSchema } from "./agent.ts";
import { checkpointRefSchema, checkpointViewSchema } from "./api.ts";
import { agentIdSchema, digestSchema } from "./id.ts";
import { flag } from "./query.ts";

/** Of a passphrase, in UTF-8. */
export const PASSPHRASE_BYTES_MAX = 1024;

/** `GET /v1/agents/:agent/export` answers the file. */
export const exportQuerySchema = z.strictObject({
  /** Absent: the newest, which an awake agent does not have. */
  checkpoint: checkpointRefSchema.optional(),
  /** Every other checkpoint that has a name, too. */
  all: flag("false"),
  /** The importing host must have the agent's image. */
  withoutImage: flag("false"),
  /** Instead of a passphrase: whoever has the file can read all of it. */
  inClear: flag("false"),
});

/** `POST /v1/agents/import?name=`: the body is the file. */
export const importQuerySchema = z.strictObject({ name: agentNameSchema });

/**
 * Header of both requests: the passphrase, in UTF-8, as base64. A header, because queries and paths are
 * written down on the way more often.
 */
export const PASSPHRASE_HEADER = "perdure-passphrase";
export const passphraseHeadersSchema = z.object({
  [PASSPHRASE_HEADER]: z
    .string()
    .min(4)
    .max(Math.ceil(PASSPHRASE_BYTES_MAX / 3) * 4)
    .regex(/^[A-Za-z0-9+/]+={0,2}$/, "must be base64")
    .optional(),
});

/** Header of an export: SHA-256 of the public key that signed it. */
export const SIGNER_HEADER = "perdure-export-signer";

export const importResponseSchema = z.object({
  /** Asleep or stopped: it was not let out yet. */
  agent: agentViewSchema,
  checkpoints: z.array(checkpointViewSchema),
  from: z.object({
    agent: agentIdSchema,
    name: z.string(),
    /** SHA-256 of the public key, in SPKI form, of the host that signed all of it. */
    signer: digestSchema,
    exportedAtMs: z.number().int(),
  }),
});
export type ImportResponse = z.infer<typeof importResponseSchema>;
