/**
 * What `verify` says: for each checkpoint every part that it names, and whether its bytes are those that
 * were written.
 */
import { z } from "zod";
import { checkpointRefSchema, errorBodySchema } from "./api.ts";
import { checkpointIdSchema } from "./id.ts";
import { checkpointKindSchema } from "./manifest.ts";

export const verifiedPartSchema = z.object({
  /** `key` is the agent's own, which opens page map, packs and devices. */
  part: z.enum(["manifest", "key", "page-map", "devices", "pack", "base", "layer"]),
  /** Id of a pack or layer, digest of a base; null where a checkpoint has one only. */
  name: z.string().nullable(),
  verdict: z.enum(["good", "damaged"]),
  /** What found the damage: `signature`, `digest`, `authentication`, `format`, `size`, `presence`. */
  check: z.string().nullable(),
  /** In words, where it is damaged. */
  detail: z.string().nullable(),
});
export type VerifiedPart = z.infer<typeof verifiedPartSchema>;

export const verifiedCheckpointSchema = z.object({
  checkpoint: checkpointIdSchema,
  name: z.string().nullable(),
  kind: checkpointKindSchema,
  /** `gone`: it was collected or dropped while it was read, which is no damage. */
  verdict: z.enum(["good", "damaged", "gone"]),
  /** Of a damaged manifest nothing more is known than that. */
  parts: z.array(verifiedPartSchema),
});
export type VerifiedCheckpoint = z.infer<typeof verifiedCheckpointSchema>;

/** `GET /v1/agents/:agent/verify?checkpoint=` */
export const verifyQuerySchema = z.strictObject({
  /** Absent: every checkpoint that is kept. */
  checkpoint: checkpointRefSchema.optional(),
});

/**
 * Streamed, one a line: `progress` now and then, a `checkpoint` for each in the order of the list, and last
 * `end`, or `error` where the reading itself failed. Files that several checkpoints share are read once.
 */
export const verifyEventSchema = z.discriminatedUnion("type", [
  z.object({
    type: z.literal("progress"),
    checkpoint: checkpointIdSchema,
    readBytes: z.number().int().nonnegative(),
    totalBytes: z.number().int().nonnegative(),
  }),
  z.object({ type: z.literal("checkpoint"), ...verifiedCheckpointSchema.shape }),
  z.object({
    type: z.literal("end"),
    good: z.number().int().nonnegative(),
    damaged: z.number().int().nonnegative(),
    gone: z.number().int().nonnegative(),
  }),
  z.object({ type: z.literal("error"), error: errorBodySchema }),
]);
export type VerifyEvent = z.infer<typeof verifyEventSchema>;
