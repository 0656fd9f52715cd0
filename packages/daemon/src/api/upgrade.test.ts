import { request } from "node:http";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Fastify from "fastify";
import { expect, it } from "vitest";
import { acceptUpgrades, isWebSocket } from "./upgrade.ts";

it("an upgrade whose connection is gone already ends", async () => {
  const folder = await mkdtemp(join(tmpdir(), "perdure-upgrade-"));
  const server = Fastify({ http: { shouldUpgradeCallback: isWebSocket } });
  const upgrades = acceptUpgrades(server);
  const accepted = Promise.withResolvers<unknown>();
  server.get("/", async (asked, reply) => {
    asked.raw.socket.destroy();
    reply.hijack();
    await upgrades.accept(asked.raw).then(accepted.resolve, accepted.resolve);
  });
  const socketPath = join(folder, "socket");
  await server.listen({ path: socketPath });
  try {
    const headers = {
      connection: "upgrade",
      upgrade: "websocket",
      "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
      "sec-websocket-version": "13",
    };
    const asking = request({ socketPath, headers });
    asking.on("error", () => undefined).end();
    expect(await accepted.promise).toMatchObject({ code: "cancelled" });
  } finally {
    await server.close();
    await rm(folder, { recursive: true });
  }
});
