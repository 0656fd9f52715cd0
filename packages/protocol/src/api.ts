/**
 * The `/v1` routes: one entry per verb with its schemas. The daemon serves them, the SDK calls them.
 *
 * Bodies are JSON unless said otherwise. An error answer is `ErrorBody` with the status of its code.
 * `:agent` is a name or an id. Streams of process output are newline-delimited JSON (`OutputEvent`).
 */
import { z } from "zod";
import {
  agentLimits,
  agentNameSchema,
  agentStateSchema,
  agentViewSchema,
  machineShapeSchema,
  onCrashSchema,
} from "./agent.ts";
import { checkpointIdSchema } from "./id.ts";
import { checkpointKindSchema } from "./manifest.ts";

/** Bounds of the API. Lengths are in bytes unless said otherwise. */
export const apiLimits = {
  bodyBytesMax: 1024 * 1024,
  argvMax: 1024,
  argumentBytesMax: 131_072,
  envMax: 1024,
  pathBytesMax: 4095,
  timeoutMsMax: 366 * 24 * 3600 * 1000,
  stdinChunkBytesMax: 1024 * 1024,
  fileBytesMax: 2 * 1024 * 1024 * 1024,
  listLimitMax: 1000,
  listLimitDefault: 100,
} as const;

/** `POST /v1/agents` */
export const createRequestSchema = z.strictObject({
  name: agentNameSchema,
  image: z.string().min(1).max(128).default("debian"),
  memoryBytes: machineShapeSchema.shape.memoryBytes.default(agentLimits.memoryBytesDefault),
  cpus: machineShapeSchema.shape.cpus.default(agentLimits.cpusDefault),
  diskBytes: machineShapeSchema.shape.diskBytes.default(agentLimits.diskBytesDefault),
  onCrash: onCrashSchema.default("checkpoint"),
});
export type CreateRequest = z.input<typeof createRequestSchema>;

/** `GET /v1/agents` */
export const listQuerySchema = z.strictObject({
  prefix: z.string().max(63).optional(),
  state: agentStateSchema.optional(),
  after: z.string().max(63).optional(),
  limit: z.coerce
    .number()
    .int()
    .min(1)
    .max(apiLimits.listLimitMax)
    .default(apiLimits.listLimitDefault),
});
export const listResponseSchema = z.object({
  agents: z.array(agentViewSchema),
  /** Pass as `after` for the next page; null on the last. */
  next: z.string().nullable(),
});
export type ListResponse = z.infer<typeof listResponseSchema>;

/** `POST /v1/agents/:agent/sleep|wake|stop|start|recover`, `DELETE /v1/agents/:agent` answer this or `agentView`. */
export const recoverRequestSchema = z.strictObject({
  /** Which cut; default is the agent's `onCrash`. */
  from: z.enum(["checkpoint", "disk"]).optional(),
});

/** `POST /v1/agents/:agent/checkpoint` */
export const checkpointRequestSchema = z.strictObject({
  name: agentNameSchema.optional(),
});

export const checkpointViewSchema = z.object({
  id: checkpointIdSchema,
  kind: checkpointKindSchema,
  name: z.string().nullable(),
  generation: z.number().int(),
  createdAtMs: z.number().int(),
  parent: checkpointIdSchema.nullable(),
  memory: z.boolean(),
  frozen: z.boolean(),
  disk: z.enum(["clean", "crash-consistent"]),
  /** Bytes that this checkpoint added to the disk. */
  addedBytes: z.number().int(),
  /** From the freeze until the thaw, as the host measured it; null where nothing went on. */
  pauseMs: z.number().nullable(),
});
export type CheckpointView = z.infer<typeof checkpointViewSchema>;

/** `POST /v1/agents/:agent/exec` */
export const execRequestSchema = z.strictObject({
  argv: z.array(z.string().max(apiLimits.argumentBytesMax)).min(1).max(apiLimits.argvMax),
  env: z.record(z.string().regex(/^[^=\0]+$/), z.string()).default({}),
  cwd: z.string().startsWith("/").max(apiLimits.pathBytesMax).optional(),
  user: z.string().min(1).max(32).default("user"),
  /** The whole tree is ended after this long awake; absent: never. */
  timeoutMs: z.number().int().min(1).max(apiLimits.timeoutMsMax).optional(),
  /** Keep stdin open for `POST …/stdin`. */
  stdin: z.boolean().default(false),
  /** Bytes of output kept for readers that come later; head and tail beyond it. */
  logBytes: z
    .number()
    .int()
    .min(4096)
    .max(16 * 1024 * 1024)
    .optional(),
});
export type ExecRequest = z.input<typeof execRequestSchema>;

export const exitSchema = z.object({
  exitCode: z.number().int().nullable(),
  signal: z.number().int().nullable(),
  timedOut: z.boolean(),
});
export type Exit = z.infer<typeof exitSchema>;

export const processViewSchema = z.object({
  process: z.number().int(),
  pid: z.number().int(),
  argv: z.array(z.string()),
  user: z.string(),
  startedAtMs: z.number().int(),
  running: z.boolean(),
  exit: exitSchema.nullable(),
  logStart: z.number().int(),
  logEnd: z.number().int(),
});
/** A process that was started by exec; `process` names it for as long as the agent keeps its memory. */
export type ProcessView = z.infer<typeof processViewSchema>;

/** `GET /v1/agents/:agent/processes/:process/output?offset=` answers a stream of these, one per line. */
export const outputEventSchema = z.discriminatedUnion("type", [
  z.object({
    type: z.literal("output"),
    stream: z.enum(["stdout", "stderr"]),
    offset: z.number().int(),
    /** base64 */
    data: z.string(),
  }),
  z.object({ type: z.literal("cut"), from: z.number().int(), to: z.number().int() }),
  z.object({ type: z.literal("exit"), ...exitSchema.shape }),
  /** The stream ends here though the process did not: it goes on after the wake. */
  z.object({ type: z.literal("interrupted"), reason: z.string(), offset: z.number().int() }),
]);
export type OutputEvent = z.infer<typeof outputEventSchema>;

/** `POST /v1/agents/:agent/processes/:process/signal` */
export const signalRequestSchema = z.strictObject({
  signal: z.number().int().min(1).max(64).default(15),
  /** Every process that it started, too. SIGKILL with `tree` answers when all are gone. */
  tree: z.boolean().default(true),
});

/** `GET|PUT /v1/agents/:agent/files?path=&user=&mode=`: the body is the file. */
export const fileQuerySchema = z.strictObject({
  path: z.string().startsWith("/").max(apiLimits.pathBytesMax),
  user: z.string().min(1).max(32).default("user"),
  /** Octal, for PUT. */
  mode: z
    .string()
    .regex(/^[0-7]{3,4}$/)
    .default("644"),
});

export const doctorFindingSchema = z.object({
  subject: z.string(),
  verdict: z.enum(["good", "limited", "missing"]),
  detail: z.string(),
  /** What to do, where something can be done. */
  advice: z.string().nullable(),
});
export const doctorReportSchema = z.object({
  ready: z.boolean(),
  findings: z.array(doctorFindingSchema),
});
export type DoctorReport = z.infer<typeof doctorReportSchema>;

/** `GET /v1/health` */
export const healthSchema = z.object({
  version: z.string(),
  pid: z.number().int(),
  startedAtMs: z.number().int(),
  home: z.string(),
});
export type Health = z.infer<typeof healthSchema>;
