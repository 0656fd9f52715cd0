/** Egress of this host: see core/ports/egress.ts. */
import { networkInterfaces } from "node:os";
import ipaddr from "ipaddr.js";
import type { Clock } from "../core/ports/clock.ts";
import type { Egress } from "../core/ports/egress.ts";
import type { OutboundConnection } from "../core/ports/guest-link.ts";
import { wayOutLimits } from "./limit.ts";
import { resolveName } from "./resolve.ts";
import { WayOut } from "./way-out.ts";

/** How programs inside name this host: their own loopback is themselves. */
export const HOST_NAME = "host.perdure.internal";

export interface EgressOptions {
  readonly clock: Clock;
  /** TCP ports that the daemon itself listens on. */
  readonly ownPorts: () => readonly number[];
}

export function createEgress({ clock, ownPorts }: EgressOptions): Egress {
  const isOwn = (address: string, port: number): boolean =>
    ownPorts().includes(port) && isOfThisHost(address);
  return {
    serve: (wanted, policy, teller) => {
      const wayOut = new WayOut({ policy, clock, isOwn, teller, resolve });
      void serveAll(wanted, wayOut);
      return wayOut;
    },
  };
}

function resolve(name: string): Promise<string[]> {
  return name === HOST_NAME ? Promise.resolve(["127.0.0.1", "::1"]) : resolveName(name);
}

/** Until the link closes: what is under way then ends by itself. */
async function serveAll(wanted: AsyncIterable<OutboundConnection>, wayOut: WayOut): Promise<void> {
  const underWay = new Set<Promise<void>>();
  try {
    for await (const one of wanted) {
      const served: Promise<void> = wayOut.serve(one).finally(() => underWay.delete(served));
      underWay.add(served);
      while (underWay.size >= wayOutLimits.openMax + wayOutLimits.waitingMax) {
        await Promise.race(underWay);
      }
    }
  } catch {
    // The link is closed.
  }
}

/** Whether a connection to the address ends on this host. */
export function isOfThisHost(text: string): boolean {
  const address = ipaddr.process(text);
  if (address.range() === "loopback" || address.range() === "unspecified") return true;
  const normal = address.toNormalizedString();
  return Object.values(networkInterfaces())
    .flatMap((addresses = []) => addresses)
    .some((own) => ipaddr.process(own.address).toNormalizedString() === normal);
}
