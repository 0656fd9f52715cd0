import { describe, test } from "vitest";
import { FakeGuest } from "../../packages/daemon/src/guest-link/fake/fake-guest.ts";
import { FakeGuestLinks } from "../../packages/daemon/src/guest-link/fake/fake-links.ts";
import { openGuestAgent, whyNoGuestAgent } from "./guest-agent.ts";
import { guestLinkContract } from "./guest-link.ts";

guestLinkContract("fake guest", () => {
  const links = new FakeGuestLinks();
  const guest = new FakeGuest({ skewMs: -90_000 });
  links.put("guest", guest);
  let port = 8000;
  return Promise.resolve({
    connect: () => links.connect("guest"),
    user: "user",
    folder: "/home/user",
    missing: {},
    listen: (serve) => {
      const own = port++;
      guest.listeners.set(own, (peer) => serve(peer, () => peer.destroy()));
      const close = (): Promise<void> => Promise.resolve(void guest.listeners.delete(own));
      return Promise.resolve({ port: own, close });
    },
    dial: ({ name, address, port: to }) => {
      const number = address.split(".").reduce((sum, part) => sum * 256 + Number(part), 0);
      return guest.wayOut.dial({ name, address: number, port: to });
    },
    close: () => Promise.resolve(),
  });
});

const why = whyNoGuestAgent();
if (why === undefined) {
  guestLinkContract("guest agent", openGuestAgent);
} else {
  describe("guest link contract: guest agent", () => {
    test("is skipped", (context) => context.skip(why));
  });
}
