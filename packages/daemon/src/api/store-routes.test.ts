/** Routes of what agents have stored: called by the SDK, over fake commands. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { agentLimits } from "@perdure/protocol";
import { Perdure } from "@perdure/sdk";
import { openFakeServer } from "../../../../test/contract/api/fake-server.ts";
import type { FakeServer } from "../../../../test/contract/api/fake-server.ts";

let folder: string;
let fake: FakeServer;
let client: Perdure;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "perdure-api-"));
  const socketPath = join(folder, "run", "perdure.sock");
  fake = await openFakeServer(socketPath, folder);
  client = new Perdure({ socketPath });
  await client.create({ name: "a1", memoryBytes: agentLimits.memoryBytesMin });
});
afterEach(async () => {
  await client.close();
  await fake.close();
  await rm(folder, { recursive: true });
});

describe("verify", () => {
  it("streams what is found, and ends with the counts", async () => {
    await client.checkpoint("a1", { name: "fine" });
    await client.checkpoint("a1", { name: "damaged-one" });
    const events = await Array.fromAsync(client.verify("a1"));
    expect(events.map(({ type }) => type)).toEqual([
      "progress",
      "checkpoint",
      "progress",
      "checkpoint",
      "end",
    ]);
    expect(events.at(-1)).toEqual({ type: "end", good: 1, damaged: 1, gone: 0 });
    const one = await Array.fromAsync(client.verify("a1", { checkpoint: "fine" }));
    expect(one.at(-1)).toEqual({ type: "end", good: 1, damaged: 0, gone: 0 });
  });

  it("ends the reading where the caller leaves", async () => {
    await client.checkpoint("a1", { name: "endless" });
    const leave = new AbortController();
    const events = client.verify("a1", { signal: leave.signal });
    expect((await events.next()).value).toMatchObject({ type: "progress" });
    leave.abort();
    await expect(events.next()).rejects.toMatchObject({ code: "cancelled" });
  });

  it("tells its reader where the daemon stops", async () => {
    await client.checkpoint("a1", { name: "endless" });
    const events = client.verify("a1");
    await events.next();
    const closed = fake.server.close(5_000);
    await expect(events.next()).rejects.toMatchObject({ code: "daemon_unreachable" });
    await client.close();
    await closed;
  });

  it("refuses a name that no checkpoint can have", async () => {
    const events = client.verify("a1", { checkpoint: "../x" });
    await expect(events.next()).rejects.toMatchObject({ code: "bad_request" });
  });
});
