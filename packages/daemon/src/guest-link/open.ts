/** Guest links over the unix socket of a machine's port. */
import { createConnection } from "node:net";
import { PerdureError } from "@perdure/protocol";
import type { Clock } from "../core/ports/clock.ts";
import type { GuestLink, GuestLinks } from "../core/ports/guest-link.ts";
import { hostClock } from "./host-clock.ts";
import { StreamGuestLink } from "./link.ts";

export interface GuestLinksOptions {
  /** Default: the host's clock. */
  readonly clock?: Clock;
}

export function createGuestLinks(options: GuestLinksOptions = {}): GuestLinks {
  const clock = options.clock ?? hostClock;
  return {
    connect(linkPath: string): Promise<GuestLink> {
      return new Promise((resolve, reject) => {
        const socket = createConnection(linkPath);
        const refuse = (why: string, cause?: Error): void => {
          const message = `Cannot connect to the guest link at "${linkPath}": ${why}`;
          reject(new PerdureError("guest_unreachable", message, { cause }));
        };
        socket.once("error", (error) => refuse("nobody is there", error));
        const link = new StreamGuestLink(socket, clock);
        socket.once("connect", () => resolve(link));
        void link.closed.then((why) => refuse(why));
      });
    },
  };
}
