/**
 * The way out of a sandbox, as E2B says it. What `allowOut` names gets out, whatever `denyOut` says; of the rest what
 * `denyOut` does not name, where the sandbox was to have the internet. Not said, it has not: nothing gets out by default.
 */
import type { EgressPolicy, EgressView } from "@perdure/protocol";
import type { createSchema, updateNetworkSchema } from "./e2b-request.ts";
import type { z } from "zod";

type Network = z.output<typeof updateNetworkSchema>;

/** @param asksForInternet whether a client that sends the field for that means it: older ones always do */
export function egressOfCreate(
  { network, allow_internet_access: internet }: z.output<typeof createSchema>,
  asksForInternet: boolean,
): EgressPolicy {
  const asked = asksForInternet ? internet : internet === false ? false : null;
  return policyOf(network ?? {}, asked === true ? "allow" : "deny");
}

/** What the body does not say of the internet stays as it is. */
export function egressOfUpdate(network: Network, before: EgressView): EgressPolicy {
  return policyOf(network, before.otherwise);
}

function policyOf(
  { allowOut, denyOut, allow_internet_access: internet }: Network,
  otherwise: EgressPolicy["otherwise"],
): EgressPolicy {
  return {
    rules: [
      ...(allowOut ?? []).map((to) => ({ action: "allow", to }) as const),
      ...(denyOut ?? []).map((to) => ({ action: "deny", to }) as const),
    ],
    otherwise: internet == null ? otherwise : internet ? "allow" : "deny",
  };
}

/** Rules that our own API made are told as far as E2B has words for them. */
export function networkOf({ rules }: EgressView) {
  const named = (wanted: "allow" | "deny") =>
    rules.filter(({ action }) => action === wanted).map(({ to }) => to);
  return { allowOut: named("allow"), denyOut: named("deny") };
}
