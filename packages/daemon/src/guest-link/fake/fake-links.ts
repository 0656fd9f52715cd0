/** The port `GuestLinks` over fake guests: paths are only names. */
import { duplexPair } from "node:stream";
import { PerdureError } from "@perdure/protocol";
import type { Clock } from "../../core/ports/clock.ts";
import type { GuestLink, GuestLinks } from "../../core/ports/guest-link.ts";
import { hostClock } from "../host-clock.ts";
import { StreamGuestLink } from "../link.ts";
import type { FakeGuest } from "./fake-guest.ts";

export class FakeGuestLinks implements GuestLinks {
  readonly #guests = new Map<string, FakeGuest>();
  readonly #clock: Clock;

  constructor(options: { readonly clock?: Clock } = {}) {
    this.#clock = options.clock ?? hostClock;
  }

  /** From now on `guest` answers at `linkPath`. */
  put(linkPath: string, guest: FakeGuest): void {
    this.#guests.set(linkPath, guest);
  }

  remove(linkPath: string): void {
    this.#guests.delete(linkPath);
  }

  connect(linkPath: string): Promise<GuestLink> {
    const guest = this.#guests.get(linkPath);
    if (guest === undefined) {
      const message = `Cannot connect to the guest link at "${linkPath}": nobody is there`;
      return Promise.reject(new PerdureError("guest_unreachable", message));
    }
    const [host, port] = duplexPair();
    guest.serve(port);
    return Promise.resolve(new StreamGuestLink(host, this.#clock));
  }
}
