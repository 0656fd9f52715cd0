/**
 * What a policy says of one connection. Plain data in, plain data out; the egress service asks, once it knows
 * where a name leads, and again whenever the policy has changed.
 *
 * - I1 An address that is not public is never reached by a rule that does not mean it: neither `*` nor a name
 *   opens the host's own network, whatever the name leads to at that moment (rebinding).
 * - I2 A rule about methods decides nothing before the method is seen, and then only where it is one of its own.
 *   What would come after such a rule waits for it: `look`.
 * - I3 A name is looked up only where some rule could let it pass: asking for it already tells its name server.
 */
import type { EgressPolicy, EgressRule } from "@perdure/protocol";
import ipaddr from "ipaddr.js";

/** One connection that a program inside wants. */
export interface WantedConnection {
  /** In lower case; null where it was asked for by address. */
  readonly name: string | null;
  /** Where it leads, as this host resolves it, or as it was asked for. */
  readonly address: string;
  readonly port: number;
  /** Undefined: not seen yet. Null: what came first is no HTTP in the clear. */
  readonly method?: string | null;
}

/** `look`: the first bytes decide. `rule`: its place in the policy; null: no rule spoke, `otherwise` did. */
export interface EgressDecision {
  readonly verdict: "allow" | "deny" | "look";
  readonly rule: number | null;
  /** For people, where it is denied. */
  readonly why: string;
}

export function decideEgress(policy: EgressPolicy, wanted: WantedConnection): EgressDecision {
  const address = ipaddr.process(wanted.address);
  const isPublic = address.range() === "unicast";
  for (const [rule, entry] of policy.rules.entries()) {
    if (!speaksOf(entry, wanted, address)) continue;
    if (entry.action === "allow" && !isPublic && !means(entry)) continue;
    if (entry.methods !== undefined) {
      if (wanted.method === undefined) return { verdict: "look", rule, why: "" };
      if (wanted.method === null || !entry.methods.includes(wanted.method)) continue;
    }
    if (entry.action === "allow") return { verdict: "allow", rule, why: "" };
    return denied(rule, entry);
  }
  if (policy.otherwise === "deny") return noRule;
  if (isPublic) return { verdict: "allow", rule: null, why: "" };
  const why = `${wanted.address} is no public address (${address.range()}), and no rule names it`;
  return { verdict: "deny", rule: null, why };
}

/** What is known before a name is looked up. Null: where it leads, or what is said first, decides. */
export function decideByName(
  { rules, otherwise }: EgressPolicy,
  wanted: { readonly name: string; readonly port: number },
): EgressDecision | null {
  for (const [rule, entry] of rules.entries()) {
    const isNetwork = networkOf(entry.to) !== null;
    if (!speaksOfPort(entry, wanted.port) || !(isNetwork || speaksOfName(entry, wanted.name)))
      continue;
    if (entry.action === "allow") return null;
    if (isNetwork || entry.methods !== undefined) continue;
    return denied(rule, entry);
  }
  return otherwise === "deny" ? noRule : null;
}

const noRule: EgressDecision = { verdict: "deny", rule: null, why: "No rule allows it" };

function denied(rule: number, { to }: EgressRule): EgressDecision {
  return { verdict: "deny", rule, why: `Rule ${rule + 1} denies ${to}` };
}

type Address = ReturnType<typeof ipaddr.process>;

/** Whether addresses that are not public are meant as well: `0.0.0.0/0` is everybody, and means none of them. */
function means(rule: EgressRule): boolean {
  if (rule.private === true) return true;
  const network = networkOf(rule.to);
  if (network === null) return false;
  const [first, last] = endsOf(network);
  return first.range() !== "unicast" && first.range() === last.range();
}

function speaksOf(rule: EgressRule, { name, port }: WantedConnection, address: Address): boolean {
  if (!speaksOfPort(rule, port)) return false;
  const network = networkOf(rule.to);
  if (network !== null) return isWithin(address, network);
  return speaksOfName(rule, name);
}

function speaksOfPort({ ports }: EgressRule, port: number): boolean {
  return ports === undefined || ports.includes(port);
}

/** Of a rule that is about no network. */
function speaksOfName({ to }: EgressRule, name: string | null): boolean {
  if (to === "*") return true;
  if (name === null) return false;
  return to.startsWith("*.") ? name.endsWith(to.slice(1)) : name === to;
}

type Network = readonly [Address, number];

function networkOf(to: string): Network | null {
  const [text = "", bits] = to.split("/");
  if (!ipaddr.isValid(text)) return null;
  const address = ipaddr.parse(text);
  return [address, bits === undefined ? (address.kind() === "ipv4" ? 32 : 128) : Number(bits)];
}

/** Its first and last address. */
function endsOf([address, bits]: Network): readonly [Address, Address] {
  const bytes = address.toByteArray();
  const ends = [0x00, 0xff].map((fill) =>
    bytes.map((byte, at) => {
      const free = 0xff >> Math.min(8, Math.max(0, bits - at * 8));
      return (byte & ~free) | (fill & free);
    }),
  );
  return ends.map((end) => ipaddr.fromByteArray(end)) as [Address, Address];
}

function isWithin(address: Address, [network, bits]: Network): boolean {
  if (address.kind() === "ipv4" && network.kind() === "ipv4") {
    return (address as ipaddr.IPv4).match(network, bits);
  }
  if (address.kind() === "ipv6" && network.kind() === "ipv6") {
    return (address as ipaddr.IPv6).match(network, bits);
  }
  return false;
}
