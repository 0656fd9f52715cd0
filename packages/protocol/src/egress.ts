/** The way out of an agent: which connections to elsewhere it may make. */
import { z } from "zod";

/** Bounds of a policy. */
export const egressLimits = {
  rulesMax: 256,
  portsPerRuleMax: 64,
  methodsPerRuleMax: 16,
  hostLengthMax: 253,
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
   * rule that is about an address or a network needs no such word: it names them itself.
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

/** Nobody gets out. */
export const closedEgress: EgressPolicy = { rules: [], otherwise: "deny" };
