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
import { egressPolicySchema } from "./egress.ts";
import { errorCodes } from "./error.ts";
import { agentIdSchema, checkpointIdSchema } from "./id.ts";
import { checkpointKindSchema } from "./manifest.ts";
import { agentEnvSchema, labelLimits, labelsSchema } from "./label.ts";
import {
  checkpointEveryMsSchema,
  endWishSchema,
  givenMomentSchema,
  idleAfterMsSchema,
} from "./rest.ts";
import { terminalSizeSchema } from "./terminal.ts";
import { wakeReportSchema } from "./wake-report.ts";
import { flag } from "./query.ts";

/** Bounds of the API. Lengths are in bytes unless said otherwise. */
export const apiLimits = {
  bodyBytesMax: 1024 * 1024,
  argvMax: 1024,
  /**
   * `argv`, `env`, `cwd` and `user` of an exec together, in UTF-8, as the link into the VM carries them:
   * with 6 bytes before each string, and up to 44 for the rest. More is `too_large`.
   */
  execBytesMax: 65_536,
  envMax: 1024,
  pathBytesMax: 4095,
  timeoutMsMax: 366 * 24 * 3600 * 1000,
  stdinChunkBytesMax: 1024 * 1024,
  fileBytesMax: 2 * 1024 * 1024 * 1024,
  /** Forks made by one call. */
  forksMax: 64,
  /** Hot children of all agents at once. */
  hotChildrenMax: 16,
  listLimitMax: 1000,
  listLimitDefault: 100,
  /** How long an answer is kept for its `Idempotency-Key`. */
  idempotencyKeptMs: 24 * 3600 * 1000,
  /** Newer ones push out the oldest: of one caller, and of all. */
  idempotencyOfCallerMax: 10_000,
  idempotencyMax: 50_000,
  idempotencyBytesMax: 64 * 1024 * 1024,
  /** A longer answer is not kept: a repeat is `idempotency_unfinished`. */
  idempotencyAnswerBytesMax: 64 * 1024,
} as const;

/**
 * Header `Idempotency-Key` of a route that changes something: 1 to 255 visible ASCII characters, with or
 * without quotes around. The same request with the same key is carried out once; its answer is given
 * again, with header `Idempotency-Replayed: true`.
 */
export const idempotencyKeySchema = z
  .string()
  .regex(/^[\x21-\x7e]{1,257}$/, "must be 1 to 255 visible ASCII characters")
  .transform((key) => (/^".+"$/.test(key) ? key.slice(1, -1) : key))
  .pipe(z.string().max(255));

/** `:agent` in a path. */
export const agentRefSchema = z.union([agentNameSchema, agentIdSchema], {
  error: "must be an agent's name or id",
});

/** `:process` in a path. */
export const processRefSchema = decimal(1);

/** `:hold` in a path. */
export const holdRefSchema = decimal(1);

/** A whole number in a path or query, up to 10^15 − 1. */
function decimal(min: number) {
  return z
    .string()
    .regex(/^[0-9]{1,15}$/, "must be a whole number")
    .transform(Number)
    .pipe(z.number().min(min));
}

/** A string that a C program can be given. */
function textWithoutNul() {
  return z.string().refine((text) => !text.includes("\0"), "must not hold a NUL character");
}

/** Every answer with a status of 400 or above. */
export const errorBodySchema = z.object({
  code: z.enum(errorCodes),
  message: z.string(),
  retry: z.enum(["never", "safe", "check"]),
  hint: z.string().optional(),
  details: z.record(z.string(), z.union([z.string(), z.number(), z.boolean()])).optional(),
});

/** Each as a whole where it is given. */
const ownerSettings = {
  /** Null: none. */
  end: endWishSchema.nullable().optional(),
  /** Default: true. */
  wakeOnTraffic: z.boolean().optional(),
  /** Default: false. Of ports whose own setting was never made: whether everybody may visit them. */
  portsPublic: z.boolean().optional(),
  labels: labelsSchema.optional(),
  /** Variables of every program that a call starts. Not shown: they may hold secrets. */
  env: agentEnvSchema.optional(),
};

/** `POST /v1/agents` */
export const createRequestSchema = z.strictObject({
  name: agentNameSchema,
  image: z.string().min(1).max(128).default("debian"),
  memoryBytes: machineShapeSchema.shape.memoryBytes.default(agentLimits.memoryBytesDefault),
  cpus: machineShapeSchema.shape.cpus.default(agentLimits.cpusDefault),
  diskBytes: machineShapeSchema.shape.diskBytes.default(agentLimits.diskBytesDefault),
  onCrash: onCrashSchema.default("checkpoint"),
  /** Whether the image's program is started at create and after each cold start. Absent: as the image says. */
  start: z.boolean().optional(),
  /** Absent: as the daemon's settings say. */
  idleAfterMs: idleAfterMsSchema.optional(),
  /** Absent: as the daemon's settings say. */
  checkpointEveryMs: checkpointEveryMsSchema.optional(),
  ...ownerSettings,
  /** Which connections to elsewhere it may make. Absent: none. */
  egress: egressPolicySchema.optional(),
});
/** Name and, where they shall not be the defaults, image, size and `onCrash`. */
export type CreateRequest = z.input<typeof createRequestSchema>;

/** `PATCH /v1/agents/:agent`: what is absent stays as it is. Answers an `AgentView`. */
export const configureRequestSchema = z.strictObject({
  /** Given, as `cpus`, at the next cold start (`stop`, then `start`). */
  memoryBytes: machineShapeSchema.shape.memoryBytes.optional(),
  cpus: machineShapeSchema.shape.cpus.optional(),
  /** Not less than it is. An awake agent's disk grows at once. */
  diskBytes: machineShapeSchema.shape.diskBytes.optional(),
  onCrash: onCrashSchema.optional(),
  idleAfterMs: idleAfterMsSchema.optional(),
  checkpointEveryMs: checkpointEveryMsSchema.optional(),
  wakeAtMs: givenMomentSchema.nullable().optional(),
  ...ownerSettings,
});
export type ConfigureRequest = z.input<typeof configureRequestSchema>;

/** `limit` of a page of any list. */
export const pageLimitSchema = z.coerce
  .number()
  .int()
  .min(1)
  .max(apiLimits.listLimitMax)
  .default(apiLimits.listLimitDefault);

/** `GET …/checkpoints|processes?after=&limit=`: `after` is the `next` of the page before. */
export const pageQuerySchema = z.strictObject({
  after: z
    .string()
    .regex(/^[1-9][0-9]{0,14}$/)
    .transform(Number)
    .optional(),
  limit: pageLimitSchema,
});

/** Pass as `after` for the next page; null on the last. */
export const nextPageSchema = z.string().nullable();

/** `KEY=VALUE`, once or several times: agents that have all of these labels. */
const labelQuerySchema = z
  .union([z.string(), z.array(z.string()).max(labelLimits.countMax)])
  .transform((given) => (typeof given === "string" ? [given] : given))
  .refine((given) => given.every((label) => label.indexOf("=") > 0), "must be KEY=VALUE")
  .transform((given) =>
    Object.fromEntries(
      given.map((label) => [
        label.slice(0, label.indexOf("=")),
        label.slice(label.indexOf("=") + 1),
      ]),
    ),
  );

/** `GET /v1/agents` */
export const listQuerySchema = z.strictObject({
  prefix: z.string().max(63).optional(),
  label: labelQuerySchema.optional(),
  state: agentStateSchema.optional(),
  after: z.string().max(63).optional(),
  limit: pageLimitSchema,
});
export const listResponseSchema = z.object({
  agents: z.array(agentViewSchema),
  next: nextPageSchema,
});
export type ListResponse = z.infer<typeof listResponseSchema>;

/** Body of the verbs that take no settings; `POST …/sleep|stop`, `DELETE /v1/agents/:agent` and `DELETE …/checkpoints/:checkpoint` answer an `AgentView`. */
export const emptyRequestSchema = z.strictObject({});

/** `POST /v1/agents/:agent/wake|start|recover|restore` answer this. */
export const letOutSchema = z.object({
  agent: agentViewSchema,
  /** What the wake gate found when the agent was let out. */
  report: wakeReportSchema.nullable(),
});
export type LetOut = z.infer<typeof letOutSchema>;

/** `GET /v1/agents/:agent/report`: null where the agent was never let out. */
export const reportResponseSchema = z.object({ report: wakeReportSchema.nullable() });

/** `POST /v1/agents/:agent/recover` */
export const recoverRequestSchema = z.strictObject({
  /** Which cut; default is the agent's `onCrash`. */
  from: z.enum(["checkpoint", "disk"]).optional(),
});

/** A checkpoint of the agent at hand, by name or id. */
export const checkpointRefSchema = z.union([agentNameSchema, checkpointIdSchema], {
  error: "must be a checkpoint's name or id",
});

/** `POST /v1/agents/:agent/restore` */
export const restoreRequestSchema = z.strictObject({ checkpoint: checkpointRefSchema });

/** `POST /v1/agents/:agent/fork` */
export const forkRequestSchema = z.strictObject({
  /** Of the new agents, all of one cut. All are made, or none. */
  names: z
    .array(agentNameSchema)
    .min(1)
    .max(apiLimits.forksMax)
    .refine((names) => new Set(names).size === names.length, "must not hold a name twice"),
  /** Absent: as the agent is now. */
  checkpoint: checkpointRefSchema.optional(),
  /** Of all of them. Absent: nothing gets out, whatever the agent itself may. */
  egress: egressPolicySchema.optional(),
});

/** In the order of the names. */
export const forkResponseSchema = z.object({ forks: z.array(letOutSchema) });

/** `POST /v1/agents/:agent/hot` */
export const hotRequestSchema = z.strictObject({
  /** Absent: the newest. */
  checkpoint: checkpointRefSchema.optional(),
  /** What takes them: a fork of the checkpoint, or the agent that goes back to it. */
  use: z.enum(["fork", "restore"]).default("fork"),
  /** How many shall be ready; 0 lets them go. */
  count: z.number().int().min(0).max(apiLimits.hotChildrenMax),
});
export type HotRequest = z.input<typeof hotRequestSchema>;

export const hotViewSchema = z.object({
  checkpoint: checkpointIdSchema,
  use: z.enum(["fork", "restore"]),
  ready: z.number().int().nonnegative(),
});
/** Hot children of a checkpoint. */
export type HotView = z.infer<typeof hotViewSchema>;

/** `POST /v1/agents/:agent/checkpoint` */
export const checkpointRequestSchema = z.strictObject({
  name: agentNameSchema.optional(),
});

export const checkpointViewSchema = z.object({
  id: checkpointIdSchema,
  /** As in the manifest: `named` is every checkpoint of an agent that went on, also without a name. */
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

/** `GET /v1/agents/:agent/checkpoints`: oldest first. */
export const checkpointsResponseSchema = z.object({
  checkpoints: z.array(checkpointViewSchema),
  next: nextPageSchema,
});
export type CheckpointsResponse = z.infer<typeof checkpointsResponseSchema>;

/** `POST /v1/agents/:agent/exec`: in all at most `apiLimits.execBytesMax`. */
export const execRequestSchema = z.strictObject({
  /** Absent or empty: the image's own program (Entrypoint and Cmd of a container image). */
  argv: z.array(textWithoutNul()).max(apiLimits.argvMax).optional(),
  /** Over the variables that the image sets. */
  env: z
    .record(z.string().regex(/^[^=\0]+$/), textWithoutNul())
    .refine(
      (env) => Object.keys(env).length <= apiLimits.envMax,
      `must not hold more than ${apiLimits.envMax} variables`,
    )
    .default({}),
  /** Absent: as the image says, else the home of the user. */
  cwd: textWithoutNul().max(apiLimits.pathBytesMax).startsWith("/").optional(),
  /** `name`, `uid`, or either with `:group` or `:gid`. Absent: as the image says, else `user`. */
  user: z.string().min(1).max(64).optional(),
  /** The whole tree is ended after this long awake; absent: never. */
  timeoutMs: z.number().int().min(1).max(apiLimits.timeoutMsMax).optional(),
  /** Keep stdin open for `POST …/stdin`. */
  stdin: z.boolean().default(false),
  /**
   * The program gets a terminal of this size: stdin, stdout and stderr are it. All output is `stdout`, and stdin
   * is open.
   */
  terminal: terminalSizeSchema.optional(),
  /** Bytes of output kept for readers that come later; head and tail beyond it. */
  logBytes: z
    .number()
    .int()
    .min(4096)
    .max(16 * 1024 * 1024)
    .optional(),
});
export type ExecRequest = z.input<typeof execRequestSchema>;

export const execResponseSchema = z.object({
  /** Names the process for as long as the agent keeps its memory. */
  process: z.number().int(),
  pid: z.number().int(),
  generation: z.number().int(),
});
export type ExecResponse = z.infer<typeof execResponseSchema>;

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

/** `GET /v1/agents/:agent/processes`: in order of start. */
export const processesResponseSchema = z.object({
  processes: z.array(processViewSchema),
  next: nextPageSchema,
});

export const outputQuerySchema = z.strictObject({ offset: decimal(0).default(0) });

/** `POST /v1/agents/:agent/processes/:process/stdin?end=`: the body is the bytes. */
export const stdinQuerySchema = z.strictObject({
  end: flag("false"),
});

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
  /** The stream ends here because reading failed; the process was not touched. */
  z.object({ type: z.literal("error"), error: errorBodySchema }),
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
  path: textWithoutNul().max(apiLimits.pathBytesMax).startsWith("/"),
  /** Whose rights count inside. Absent: as for an exec. */
  user: z.string().min(1).max(64).optional(),
  /** Octal, for PUT. */
  mode: z
    .string()
    .regex(/^[0-7]{3,4}$/)
    .default("644"),
});

/** Headers of the answer to `GET …/files`: facts about the file as it was opened. Decimal but for mode. */
export const fileHeaders = {
  size: "perdure-file-size",
  /** Octal permission bits. */
  mode: "perdure-file-mode",
  uid: "perdure-file-uid",
  gid: "perdure-file-gid",
  mtimeMs: "perdure-file-mtime-ms",
} as const;

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

/** `GET /v1/health` to a caller without a key. */
export const aliveSchema = z.object({ alive: z.literal(true) });

/** `GET /v1/health` */
export const healthSchema = z.object({
  version: z.string(),
  pid: z.number().int(),
  startedAtMs: z.number().int(),
  home: z.string(),
  /** Where it listens on TCP; null: nowhere. */
  url: z.string().nullable(),
  /** On the daemon's host: the certificate of whoever clients over TLS have to trust; null: none of the daemon's own. */
  authorityFile: z.string().nullable(),
});
export type Health = z.infer<typeof healthSchema>;

/** `GET /v1/metrics` */
export const metricsSchema = z.object({
  /** Delay of the daemon's event loop since the last reading, milliseconds. */
  loopDelayMs: z.object({ p50: z.number(), p99: z.number(), max: z.number() }),
});
export type Metrics = z.infer<typeof metricsSchema>;
