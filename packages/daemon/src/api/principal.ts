/** Who asks: whose agents a request can reach, and what it may do with them. */
import type { Scope } from "@perdure/protocol";

export interface Principal {
  /** Its idempotency keys are its own. */
  readonly id: string;
  readonly tenant: string;
  readonly scope: Scope;
}

/** Whoever can open the daemon's unix socket; its file mode is the gate. */
export const localPrincipal: Principal = { id: "local", tenant: "default", scope: "admin" };
