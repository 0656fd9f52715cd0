/** The wake report, version 1: what the wake gate checked and found before it let an agent out. */
import { z } from "zod";
import { agentIdSchema, checkpointIdSchema } from "./id.ts";
import { checkpointKindSchema } from "./manifest.ts";

export const routeSchema = z.enum([
  "create",
  "wake",
  "restore",
  "recover",
  "fork",
  "cold-start",
  /** The first let-out of an agent that came from a file. */
  "import",
]);
/** How a generation began. */
export type Route = z.infer<typeof routeSchema>;

export const gateCheckSchema = z.object({
  /** `manifest`, `devices`, `memory`, `layers`, `substrate`, `clock`, `entropy`, `identity`, `generation`, `hooks`… */
  check: z.string(),
  outcome: z.enum(["passed", "notice", "failed", "not-applicable"]),
  detail: z.string(),
});
export type GateCheck = z.infer<typeof gateCheckSchema>;

export const cutSchema = z.object({
  checkpoint: checkpointIdSchema.nullable(),
  kind: checkpointKindSchema,
  atMs: z.number().int(),
  memory: z.boolean(),
  disk: z.enum(["clean", "crash-consistent"]),
});

export const wakeReportSchema = z.object({
  version: z.literal(1),
  agent: agentIdSchema,
  name: z.string(),
  route: routeSchema,
  generation: z.number().int().positive(),
  previousGeneration: z.number().int().nonnegative(),
  verdict: z.enum(["continue", "continue-with-notices", "quarantine"]),
  startedAtMs: z.number().int(),
  letOutAtMs: z.number().int().nullable(),
  /** From the cut to the wake, as the host's clock tells. */
  awayMs: z.number().int().nonnegative(),
  /** The guest's wall clock against the host's: error after setting, and the bound it is known to. */
  clock: z
    .object({
      skewMs: z.number(),
      boundMs: z.number(),
      roundTrips: z.number().int(),
      /** How far it was moved for that. Absent in reports of older daemons. */
      movedMs: z.number().optional(),
    })
    .nullable(),
  entropyBytes: z.number().int().nonnegative(),
  /** Which cut this generation started from. */
  cut: cutSchema,
  /** The cut not taken after a crash, or what a restore was done in place of; kept until the owner drops it. */
  otherCut: cutSchema.extend({ keptAs: z.string() }).nullable(),
  checks: z.array(gateCheckSchema),
  /** Milliseconds of each phase, from the request until let out. */
  phases: z.record(z.string(), z.number()),
});

/** The result of the wake gate. */
export type WakeReport = z.infer<typeof wakeReportSchema>;
