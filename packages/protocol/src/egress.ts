/** The way out of an agent: which connections to elsewhere it may make. */
import { z } from "zod";
import { agentIdSchema, connectionIdSchema } from "./id.ts";

/** Bounds of a policy. */
export const egressLimits = {
  rulesMax: 256,
  portsPerRuleMax: 64,
  methodsPerRuleMax: 16,
  hostLengthMax: 253,
  /** Of an agent's connections that were carried, and of those that were not: so many of the newest are kept. */
  connectionsKeptMax: 10_000,
  connectionsKeptMs: 30 * 24 * 3_600_000,
} as const;

const label = "[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?";
const hostName = new RegExp(`^(\\*\\.)?${label}(\\.${label})*$`);
/** Resolvers take such a name for an address, `1.2.3` for 1.2.0.3. */
const endsInNumber = /(^|\.)(\d+|0x[0-9a-f]*)$/;

/**
 * Whom a rule is about: a host's name; `*.example.com`, every name below that one; an IPv4 or IPv6 address or a
 * network (`10.0.0.0/8`), for what is asked for by address or where a name leads; `*`, everybody.
 */
export const egressTargetSchema = z
  .string()
  .min(1)
  .max(egressLimits.hostLengthMax)
  .toLowerCase()
  .refine((target) => target === "*" || isNetwork(target) || isHostName(target), {
    error: 'neither a name, "*.name", an address, a network as in 10.0.0.0/8, nor "*"',
  });

function isHostName(target: string): boolean {
  return hostName.test(target) && !endsInNumber.test(target);
}

function isNetwork(target: string): boolean {
  const [address = "", bits, ...rest] = target.split("/");
  if (rest.length > 0) return false;
  const isV4 = z.ipv4().safeParse(address).success;
  if (!isV4 && !z.ipv6().safeParse(address).success) return false;
  return bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= (isV4 ? 32 : 128));
}

export const egressRuleSchema = z.strictObject({
  action: z.enum(["allow", "deny"]),
  to: egressTargetSchema,
  /** TCP ports; absent: all. */
  ports: z
    .array(z.number().int().min(1).max(65_535))
    .min(1)
    .max(egressLimits.portsPerRuleMax)
    .optional(),
  /** HTTP methods. Such a rule speaks only of connections whose first bytes are HTTP in the clear. */
  methods: z
    .array(z.string().regex(/^[A-Z]{1,20}$/, "a method in capitals, as in GET"))
    .min(1)
    .max(egressLimits.methodsPerRuleMax)
    .optional(),
  /**
   * Of `allow`: also where a name leads to an address that is not public (this host, its network, link-local). A
   * rule about such an address, or a network that has no public ones, needs no such word: it names them itself.
   */
  private: z.boolean().optional(),
});
export type EgressRule = z.infer<typeof egressRuleSchema>;

/** The first rule that speaks of a connection decides; where none does, `otherwise`. */
export const egressPolicySchema = z.strictObject({
  rules: z.array(egressRuleSchema).max(egressLimits.rulesMax).default([]),
  otherwise: z.enum(["allow", "deny"]).default("deny"),
});
export type EgressPolicy = z.infer<typeof egressPolicySchema>;

/** What may be left out has its default. */
export type EgressRequest = z.input<typeof egressPolicySchema>;

/** Nobody gets out. */
export const closedEgress: EgressPolicy = { rules: [], otherwise: "deny" };

/** Whether nothing gets out under it. */
export function isClosedEgress({ rules, otherwise }: EgressPolicy): boolean {
  return otherwise === "deny" && rules.every(({ action }) => action === "deny");
}

/** `GET|PUT /v1/agents/:agent/egress` */
export const egressViewSchema = z.object({
  agent: agentIdSchema,
  rules: z.array(egressRuleSchema),
  otherwise: z.enum(["allow", "deny"]),
  /**
   * `open`: it has a way out, which the policy speaks of. `none`: it is awake and has none, as its guest agent is of
   * before there was one; a cold start (stop, then start) gives it one. Null: it is not awake.
   */
  wayOut: z.enum(["open", "none"]).nullable(),
  /** Connections that are being made or carried now. */
  connections: z.number().int().nonnegative(),
});
export type EgressView = z.infer<typeof egressViewSchema>;

export const connectionOutcomeSchema = z.enum(["open", "carried", "denied", "failed", "lost"]);
/** `lost`: the daemon ended before it did; what it carried is not known. */
export type ConnectionOutcome = z.infer<typeof connectionOutcomeSchema>;

export const connectionViewSchema = z.object({
  id: connectionIdSchema,
  /** Of the agent when it was made. */
  generation: z.number().int(),
  atMs: z.number().int(),
  /** Null: it is open. */
  endedAtMs: z.number().int().nullable(),
  /** That it was made to; null: it was made to an address. */
  name: z.string().nullable(),
  /** Where it led; null: the name led nowhere. */
  address: z.string().nullable(),
  port: z.number().int(),
  /** Of its first HTTP request, where a rule asked for it. */
  method: z.string().nullable(),
  outcome: connectionOutcomeSchema,
  /** Place in the policy of that moment, from 0, of the rule that decided; null: no rule spoke. */
  rule: z.number().int().nullable(),
  /** What it did outside is not known here: it may have changed something there. */
  unmediated: z.boolean(),
  outBytes: z.number().int(),
  inBytes: z.number().int(),
  /** Why it was denied, failed or broken off. */
  why: z.string().nullable(),
});
/** One connection of a program inside to elsewhere. */
export type ConnectionView = z.infer<typeof connectionViewSchema>;

/** `GET /v1/agents/:agent/connections`: oldest first. */
export const connectionsResponseSchema = z.object({
  connections: z.array(connectionViewSchema),
  next: z.string().nullable(),
});
export type ConnectionsResponse = z.infer<typeof connectionsResponseSchema>;
