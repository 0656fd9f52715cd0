/** Egress of the simulation: what is served, under which policy, and a way to tell of connections. */
import { PerdureError, type EgressPolicy } from "@perdure/protocol";
import type {
  ConnectionEnd,
  ConnectionStart,
  ConnectionTeller,
  Egress,
} from "../../packages/daemon/src/core/ports/egress.ts";
import type { OutboundConnection } from "../../packages/daemon/src/core/ports/guest-link.ts";
import type { GuestWire } from "./guest-wire.ts";

interface Served {
  /** Every policy that held, the newest last. */
  readonly policies: EgressPolicy[];
  readonly teller: ConnectionTeller;
}

export class FakeEgress implements Egress {
  readonly served: Served[] = [];

  serve(_: unknown, policy: EgressPolicy, teller: ConnectionTeller) {
    const policies = [policy];
    this.served.push({ policies, teller });
    return { apply: (changed: EgressPolicy) => void policies.push(changed), open: 0 };
  }
}

/** A way out that nobody inside uses; it ends with the link. */
export function silentWayOut(
  wire: GuestWire,
): AsyncIterableIterator<OutboundConnection, undefined> {
  return {
    [Symbol.asyncIterator]() {
      return this;
    },
    next: async () => {
      throw new PerdureError("interrupted", `The way out ended: ${await wire.closed}`);
    },
  };
}

export function sampleStart(part: Partial<ConnectionStart> = {}): ConnectionStart {
  return {
    atMs: 1_700_000_000_000,
    name: "api.example.com",
    address: "192.0.2.1",
    port: 443,
    method: null,
    rule: 0,
    unmediated: true,
    ...part,
  };
}

export function sampleEnd(part: Partial<ConnectionEnd> = {}): ConnectionEnd {
  const end = { outcome: "carried", outBytes: 5, inBytes: 7, ms: 20, why: null } as const;
  return { ...sampleStart(), ...end, ...part };
}
