/** Who asks: whose agents a request can reach, and what it may do with them. */
import { PerdureError, scopes } from "@perdure/protocol";
import type { ApiRoute, Scope } from "@perdure/protocol";
import type { ApiKey } from "../core/api-key.ts";

export interface Principal {
  /** Its idempotency keys are its own. */
  readonly id: string;
  readonly tenant: string;
  readonly scope: Scope;
  /** Names or ids of the only agents it reaches; null: all of the tenant. */
  readonly agents: readonly string[] | null;
}

/** Whoever can open the daemon's unix socket; its file mode is the gate. */
export const localPrincipal: Principal = {
  id: "local",
  tenant: "default",
  scope: "admin",
  agents: null,
};

/** Nobody in particular, over TCP: reaches no agent. */
export const anonymous: Principal = { id: "anonymous", tenant: "", scope: "none", agents: [] };

export function principalOf({ id, tenant, scope, agents }: ApiKey): Principal {
  return { id, tenant, scope, agents };
}

export function mayUse({ scope }: Pick<Principal, "scope">, needed: Scope): boolean {
  return scopes.indexOf(scope) >= scopes.indexOf(needed);
}

/** @throws `forbidden` where the scope that `what` needs is none of the principal's */
export function assertMayUse(
  { scope }: Pick<Principal, "scope">,
  needed: Scope,
  what: string,
): void {
  if (mayUse({ scope }, needed)) return;
  throw new PerdureError(
    "forbidden",
    `Cannot call ${what}: it needs scope "${needed}", the key has "${scope}"`,
    { hint: "Use a key with that scope.", details: { needed, scope } },
  );
}

/** @throws `forbidden` where the principal may not call the route at all */
export function assertMayCall({ scope, agents }: Principal, route: ApiRoute): void {
  assertMayUse({ scope }, route.scope, `${route.method} ${route.path}`);
  if (agents === null || route.narrowed === true || route.path.includes(":agent")) return;
  throw new PerdureError(
    "forbidden",
    `Cannot call ${route.method} ${route.path}: the key is limited to some agents`,
    { hint: "Use a key without such a limit." },
  );
}

/** @throws `forbidden` where the principal may have no agent of one of these names */
export function assertMayName({ agents }: Principal, names: readonly string[]): void {
  const other = names.find((name) => agents?.includes(name) === false);
  if (other === undefined) return;
  throw new PerdureError("forbidden", `Cannot make agent "${other}": the key does not reach it`, {
    hint: "Use a key without such a limit, or one that names the new agent, too.",
  });
}
