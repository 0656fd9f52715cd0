import { once } from "node:events";
import { createServer, type AddressInfo } from "node:net";
import { networkInterfaces } from "node:os";
import { buffer } from "node:stream/consumers";
import { PerdureError } from "@perdure/protocol";
import { afterEach, expect, test } from "vitest";
import { createSystemClock } from "../clock.ts";
import type { ConnectionEnd } from "../core/ports/egress.ts";
import type { OutboundConnection } from "../core/ports/guest-link.ts";
import { SocketPairs } from "./fake/socket-pair.ts";
import { createEgress, HOST_NAME, isOfThisHost } from "./open.ts";

const pairs = new SocketPairs();
afterEach(() => pairs.close());

const interfaces = Object.values(networkInterfaces())
  .flatMap((addresses = []) => addresses)
  .map(({ address }) => address);

test.each(["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::", ...interfaces])(
  "%s is this host",
  (address) => {
    expect(isOfThisHost(address)).toBe(true);
  },
);

test.each(["192.0.2.1", "10.255.255.1", "2001:db8::1"])("%s is not", (address) => {
  expect(isOfThisHost(address)).toBe(false);
});

test("what is wanted is served until the link closes, this host by its name, its own ports not", async () => {
  const server = createServer((socket) => socket.end("hello")).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const ends: ConnectionEnd[] = [];
  const told = (end: ConnectionEnd): Promise<void> => Promise.resolve(void ends.push(end));
  const [free, own] = [await pairs.inside(), await pairs.inside()];
  const ownPort = port === 65_535 ? 1 : port + 1;
  async function* wanted(): AsyncIterableIterator<OutboundConnection, undefined> {
    const facts = { name: HOST_NAME, address: "198.18.0.2" };
    yield { ...facts, port, take: () => Promise.resolve(free) };
    yield { ...facts, port: ownPort, take: () => Promise.resolve(own) };
    await Promise.resolve();
    throw new PerdureError("interrupted", "The way out ended");
  }
  const egress = createEgress({ clock: createSystemClock(), ownPorts: () => [ownPort] });
  const rule = { action: "allow", to: HOST_NAME, private: true } as const;
  const wayOut = egress.serve(
    wanted(),
    { rules: [rule], otherwise: "deny" },
    { begun: () => Promise.resolve(told), refused: told, passed: () => undefined },
  );
  free.near.end();
  expect((await buffer(free.near)).toString()).toBe("hello");
  await expect(buffer(own.near)).rejects.toThrow("ECONNRESET");
  while (wayOut.open > 0) await new Promise((next) => setImmediate(next));
  server.close();
  expect(ends.map(({ outcome }) => outcome).sort()).toEqual(["carried", "denied"]);
});
