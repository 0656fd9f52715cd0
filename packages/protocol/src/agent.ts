/** What an agent is, as the API, SDK and CLI show it, and the bounds of what may be asked. */
import { z } from "zod";
import { agentIdSchema, checkpointIdSchema, digestSchema } from "./id.ts";
import { labelsSchema } from "./label.ts";
import {
  checkpointEveryMsSchema,
  endSchema,
  holdSchema,
  idleAfterMsSchema,
  wakeAtMsSchema,
} from "./rest.ts";

export const MIB = 1024 * 1024;
export const GIB = 1024 * MIB;

/** Bounds of an agent's size. Memory and disk are in bytes. */
export const agentLimits = {
  nameLengthMax: 63,
  memoryBytesMin: 128 * MIB,
  memoryBytesMax: 8 * GIB,
  memoryBytesStep: 2 * MIB,
  memoryBytesDefault: 512 * MIB,
  cpusMin: 1,
  cpusMax: 4,
  cpusDefault: 1,
  diskBytesMin: 2 * GIB,
  diskBytesMax: 1024 * GIB,
  diskBytesStep: MIB,
  diskBytesDefault: 8 * GIB,
} as const;

/** A name: lower-case letters, digits and hyphens, as a DNS label (RFC 1123), never an id's form. */
export const agentNameSchema = z
  .string()
  .regex(
    /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/,
    "1 to 63 lower-case letters, digits and hyphens, with no hyphen at either end",
  );

export const machineShapeSchema = z.object({
  memoryBytes: z
    .number()
    .int()
    .min(agentLimits.memoryBytesMin)
    .max(agentLimits.memoryBytesMax)
    .multipleOf(agentLimits.memoryBytesStep),
  cpus: z.number().int().min(agentLimits.cpusMin).max(agentLimits.cpusMax),
  diskBytes: z
    .number()
    .int()
    .min(agentLimits.diskBytesMin)
    .max(agentLimits.diskBytesMax)
    .multipleOf(agentLimits.diskBytesStep),
});

/** The size of a VM. Part of the key of spares and templates. */
export type MachineShape = z.infer<typeof machineShapeSchema>;

/** Of an agent's size, what was set and it does not have yet. */
export const pendingSchema = machineShapeSchema.partial();
export type Pending = z.infer<typeof pendingSchema>;

/**
 * Which cut a crashed agent is recovered from: `checkpoint` the last one (memory and disk, older),
 * `disk` the newest disk (no memory), `ask` neither before the owner chooses.
 */
export const onCrashSchema = z.enum(["checkpoint", "disk", "ask"]);
export type OnCrash = z.infer<typeof onCrashSchema>;

export const agentStateSchema = z.enum([
  "creating",
  "awake",
  "falling-asleep",
  "asleep",
  "waking",
  "stopping",
  "stopped",
  "quarantined",
  "failed",
  "removed",
]);
export type AgentState = z.infer<typeof agentStateSchema>;

export const failureSchema = z.object({
  /** Why: `crashed`, `panic`, `wake_failed`, `create_failed`, `start_failed`, `reset_loop`, `quarantined`. */
  reason: z.string(),
  message: z.string(),
  /** Which verb leads out. */
  wayBack: z.string(),
  atMs: z.number().int(),
});
export type Failure = z.infer<typeof failureSchema>;

/** An agent as shown to its owner. Times are milliseconds since the epoch. */
export const agentViewSchema = z.object({
  id: agentIdSchema,
  name: agentNameSchema,
  tenant: z.string(),
  state: agentStateSchema,
  /** Set while awake but not running: `disk full` and the like. */
  paused: z.string().nullable(),
  generation: z.number().int().nonnegative(),
  image: z.object({ id: digestSchema, name: z.string() }),
  /** What it has. */
  shape: machineShapeSchema,
  /** What was set besides: memory and CPUs come with the next cold start, the disk at the latest with the next wake. */
  pending: pendingSchema.nullable(),
  onCrash: onCrashSchema,
  idleAfterMs: idleAfterMsSchema,
  checkpointEveryMs: checkpointEveryMsSchema,
  /** Those that have not ended. */
  holds: z.array(holdSchema),
  wakeAtMs: wakeAtMsSchema,
  /** While it sleeps: when the first program inside that waits for a time is due, and it is woken. */
  waitDueMs: wakeAtMsSchema,
  /** Ports inside that everybody may visit through their preview hosts. */
  publicPorts: z.array(z.number().int()),
  /** Whether everybody may visit the others, too, but those that were made private. */
  portsPublic: z.boolean(),
  end: endSchema.nullable(),
  /** Whether traffic to its ports wakes it. */
  wakeOnTraffic: z.boolean(),
  labels: labelsSchema,
  /** Of its way out: how many rules, and what is done with connections that none of them speaks of. */
  egress: z.object({ rules: z.number().int(), otherwise: z.enum(["allow", "deny"]) }),
  head: checkpointIdSchema.nullable(),
  /** Bytes on disk that exist for this agent alone. */
  storedBytes: z.number().int().nonnegative(),
  failure: failureSchema.nullable(),
  createdAtMs: z.number().int(),
  changedAtMs: z.number().int(),
});
export type AgentView = z.infer<typeof agentViewSchema>;
