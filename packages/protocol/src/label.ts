/** What an owner says of an agent that means something to the owner alone, and what its programs are told. */
import { z } from "zod";

/** Bounds of labels and of an agent's own variables. Lengths are in characters. */
export const labelLimits = {
  countMax: 64,
  keyLengthMax: 256,
  valueLengthMax: 4096,
  /** All keys and values together. */
  totalLengthMax: 16 * 1024,
} as const;

/** Key → value; a list can be narrowed to agents that have all of some. */
export const labelsSchema = z
  .record(
    z.string().min(1).max(labelLimits.keyLengthMax),
    z.string().max(labelLimits.valueLengthMax),
  )
  .refine(isSmall, "must hold 64 entries of 16384 characters in all at most");
export type Labels = z.infer<typeof labelsSchema>;

/** Variables of every program that a call starts in the agent: over the image's, under the call's own. */
export const agentEnvSchema = z
  .record(
    z
      .string()
      .regex(/^[^=\0]+$/)
      .max(labelLimits.keyLengthMax),
    z
      .string()
      .max(labelLimits.valueLengthMax)
      .refine((text) => !text.includes("\0"), "must not hold a NUL character"),
  )
  .refine(isSmall, "must hold 64 entries of 16384 characters in all at most");

function isSmall(entries: Readonly<Record<string, string>>): boolean {
  const all = Object.entries(entries);
  const length = all.reduce((sum, [key, value]) => sum + key.length + value.length, 0);
  return all.length <= labelLimits.countMax && length <= labelLimits.totalLengthMax;
}
