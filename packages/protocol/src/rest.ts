/** Rest: when an agent is put to sleep and woken without being asked, and what keeps it from that. */
import { z } from "zod";

/** Bounds of rest settings and holds. Times are in milliseconds. */
export const restLimits = {
  idleAfterMsMin: 1_000,
  idleAfterMsMax: 365 * 24 * 3_600_000,
  idleAfterMsDefault: 60_000,
  checkpointEveryMsMin: 1_000,
  checkpointEveryMsMax: 30 * 24 * 3_600_000,
  checkpointEveryMsDefault: 60_000,
  holdMsMin: 1_000,
  holdMsMax: 24 * 3_600_000,
  holdMsDefault: 15 * 60_000,
  /** Holds of one agent at once. */
  holdsMax: 16,
  reasonLengthMax: 200,
  /** The last moment that a caller can name: the end of the year 9999. */
  momentMsMax: Date.UTC(9999, 11, 31, 23, 59, 59, 999),
  endAfterMsMin: 1,
  endAfterMsMax: 366 * 24 * 3_600_000,
} as const;

/** Put to sleep after this long without anybody or anything that needs it awake; null: never. */
export const idleAfterMsSchema = z
  .number()
  .int()
  .min(restLimits.idleAfterMsMin)
  .max(restLimits.idleAfterMsMax)
  .nullable();

/** A checkpoint is taken this often while it is awake and something has changed; null: never. */
export const checkpointEveryMsSchema = z
  .number()
  .int()
  .min(restLimits.checkpointEveryMsMin)
  .max(restLimits.checkpointEveryMsMax)
  .nullable();

/** A moment, milliseconds since the epoch. */
export const momentSchema = z
  .number()
  .int()
  .min(0)
  .max(8.64e15 - 1);

/** A moment that a caller names. */
export const givenMomentSchema = z.number().int().min(0).max(restLimits.momentMsMax);

/** When the agent is to be woken if it sleeps then; a moment that is past wakes it at once. Null: not. */
export const wakeAtMsSchema = momentSchema.nullable();

export const holdSchema = z.object({
  /** Names the hold within its agent. */
  id: z.number().int().positive(),
  reason: z.string(),
  untilMs: momentSchema,
});
/** Keeps an agent from being put to sleep for being idle, until a moment. */
export type Hold = z.infer<typeof holdSchema>;

const endThenSchema = z.enum(["sleep", "remove"]);

/** When an awake agent is put to sleep or removed, whatever it does; asleep it is left alone. */
export const endSchema = z.object({
  /** Null: it was not let out yet. */
  atMs: momentSchema.nullable(),
  /** From when it was set, or from a wake that comes after it. */
  afterMs: z.number().int(),
  then: endThenSchema,
});
export type End = z.infer<typeof endSchema>;

/** An end that is set: so long from now on, of a new agent from when it is let out. */
export const endWishSchema = z.strictObject({
  afterMs: z.number().int().min(restLimits.endAfterMsMin).max(restLimits.endAfterMsMax),
  /** Absent: as it was, else `sleep`. */
  then: endThenSchema.optional(),
  /** An end that is later already stays. */
  extend: z.boolean().optional(),
  /** One that begins anew, after it has passed, is as long as before. */
  once: z.boolean().optional(),
});
export type EndWish = z.infer<typeof endWishSchema>;

/** `POST /v1/agents/:agent/holds` answers a `Hold`. */
export const holdRequestSchema = z.strictObject({
  forMs: z
    .number()
    .int()
    .min(restLimits.holdMsMin)
    .max(restLimits.holdMsMax)
    .default(restLimits.holdMsDefault),
  reason: z.string().max(restLimits.reasonLengthMax).default(""),
});
export type HoldRequest = z.input<typeof holdRequestSchema>;

/** `POST /v1/agents/:agent/quarantine` */
export const quarantineRequestSchema = z.strictObject({
  reason: z.string().min(1).max(restLimits.reasonLengthMax),
});
