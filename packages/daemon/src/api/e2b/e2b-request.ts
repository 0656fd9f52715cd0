/** Bodies and queries of E2B's API. What is not known is let pass: clients differ, and what they add is optional. */
import {
  agentEnvSchema,
  apiLimits,
  egressLimits,
  egressTargetSchema,
  labelsSchema,
  PerdureError,
  restLimits,
} from "@perdure/protocol";
import { z } from "zod";

/** Seconds; the time-out where a client says none. */
const TIMEOUT_DEFAULT_S = 300;

const seconds = z
  .number()
  .int()
  .min(0)
  .max(restLimits.endAfterMsMax / 1000);
const timeout = seconds.default(TIMEOUT_DEFAULT_S);

const targets = z.array(egressTargetSchema).max(egressLimits.rulesMax / 2);

const networkSchema = z.looseObject({
  allowOut: targets.nullish(),
  denyOut: targets.nullish(),
  rules: z.record(z.string(), z.unknown()).nullish(),
  egressProxy: z.unknown().optional(),
  allow_internet_access: z.boolean().nullish(),
  /** Who may visit ports; default: everybody. */
  allowPublicTraffic: z.boolean().nullish(),
});

export const createSchema = z.looseObject({
  templateID: z.string().min(1).max(128),
  timeout,
  autoPause: z.boolean().nullish(),
  autoPauseMemory: z.boolean().nullish(),
  autoResume: z.looseObject({ enabled: z.boolean().default(false) }).nullish(),
  metadata: labelsSchema.nullish(),
  envVars: agentEnvSchema.nullish(),
  allow_internet_access: z.boolean().nullish(),
  network: networkSchema.nullish(),
  mcp: z.unknown().optional(),
  iam: z.unknown().optional(),
  volumeMounts: z.array(z.unknown()).nullish(),
});

export const connectSchema = z.looseObject({ timeout, memory: z.boolean().nullish() });
export const pauseSchema = z.looseObject({ memory: z.boolean().nullish() });
export const timeoutSchema = z.looseObject({ timeout: seconds });
export const refreshSchema = z.looseObject({ duration: seconds.optional() });
export const forkSchema = z.looseObject({
  timeout,
  count: z.number().int().min(1).max(apiLimits.forksMax).default(1),
});
export const snapshotSchema = z.looseObject({ name: z.string().nullish() });
export const updateNetworkSchema = networkSchema;

const limit = z.coerce.number().int().min(1).max(100).default(100);
const states = z
  .string()
  .transform((text) => text.split(","))
  .pipe(z.array(z.enum(["running", "paused"])));

export const listSchema = z.looseObject({
  metadata: z.string().transform(decodeMetadata).optional(),
  state: z.union([states, z.array(z.enum(["running", "paused"]))]).optional(),
  order: z.enum(["asc", "desc"]).default("desc"),
  startedAfter: z.iso.datetime({ offset: true }).optional(),
  template: z.string().optional(),
  limit,
  nextToken: z.string().max(256).optional(),
});

export const snapshotsSchema = z.looseObject({
  sandboxID: z.string().optional(),
  name: z.string().optional(),
  limit,
  nextToken: z.string().max(256).optional(),
});

/** `key=value&…`, each part encoded once more. */
function decodeMetadata(text: string): Record<string, string> {
  const pairs = [...new URLSearchParams(text)].map(([key, value]) => [decode(key), decode(value)]);
  return Object.fromEntries(pairs) as Record<string, string>;
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** @throws `not_supported` where the sandbox would be other than it was asked for */
export function refuseUnsupported(body: z.output<typeof createSchema>): void {
  const { mcp, iam, volumeMounts, network } = body;
  if (mcp != null) throw notSupported("mcp");
  if (iam != null) throw notSupported("iam");
  if (volumeMounts != null && volumeMounts.length > 0) throw notSupported("volumeMounts");
  if (body.autoPauseMemory === false) throw notSupported("autoPauseMemory: false");
  if (network != null) refuseNetwork(network);
}

/** @throws `not_supported` */
export function refuseNetwork({ rules, egressProxy }: z.output<typeof networkSchema>): void {
  if (rules != null && Object.keys(rules).length > 0) throw notSupported("rules");
  if (egressProxy != null) throw notSupported("egressProxy");
}

function notSupported(field: string): PerdureError {
  return new PerdureError(
    "not_supported",
    `Cannot do what "${field}" asks for: not supported yet`,
    {
      hint: "Leave it out.",
      details: { field },
    },
  );
}
