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

describe("export and import", () => {
  const exported = async (options: Parameters<Perdure["export"]>[1]): Promise<Buffer> => {
    const { bytes } = await client.export("a1", options);
    return Buffer.concat(await Array.fromAsync(bytes));
  };

  it("carry an agent through a file, with who signed it", async () => {
    await client.sleep("a1");
    const file = await client.export("a1", { inClear: true });
    expect(file.signer).toMatch(/^b{64}$/);
    const answer = await client.import("a2", file.bytes);
    expect(answer).toMatchObject({
      agent: { name: "a2", state: "asleep" },
      checkpoints: [{ kind: "import" }],
      from: { name: "a1", signer: file.signer },
    });
    expect(fake.commands.exportsOpen.count).toBe(0);
  });

  it("take a passphrase of any letters, and no other", async () => {
    await client.sleep("a1");
    const passphrase = "pässwörd 🔑 of\nany letters";
    const bytes = await exported({ passphrase });
    await expect(client.import("a2", bytes, { passphrase: "x" })).rejects.toMatchObject({
      code: "export_passphrase",
    });
    await expect(client.import("a2", bytes)).rejects.toMatchObject({ code: "export_passphrase" });
    await client.import("a2", bytes, { passphrase });
  });

  it("need a passphrase, or the word that it may be in the clear, and not both", async () => {
    await client.sleep("a1");
    for (const options of [{}, { inClear: true, passphrase: "x" }]) {
      await expect(client.export("a1", options)).rejects.toMatchObject({
        code: "bad_request",
        hint: expect.stringContaining("--in-clear") as string,
      });
    }
    const long = "x".repeat(1025);
    await expect(client.export("a1", { passphrase: long })).rejects.toMatchObject({
      code: "bad_request",
    });
  });

  it("of an awake agent tell the way", async () => {
    await expect(client.export("a1", { inClear: true })).rejects.toMatchObject({
      code: "agent_state",
      hint: '"perdure sleep a1" first',
    });
  });

  it("answer an upload that is refused, though all of it was sent, or none", async () => {
    const endless = (async function* () {
      for (let i = 0; i < 200; i++) yield await Promise.resolve(Buffer.alloc(65_536, 1));
    })();
    for (const bytes of [endless, Buffer.from("no"), Buffer.alloc(3_000_000, 2)]) {
      await expect(client.import("a2", bytes)).rejects.toMatchObject({ code: "export_invalid" });
    }
    await expect(client.show("a2")).rejects.toMatchObject({ code: "agent_not_found" });
  });

  it("close the export where its reader leaves", async () => {
    await client.sleep("a1");
    const { bytes } = await client.export("a1", { inClear: true });
    for await (const chunk of bytes) if (chunk.length > 0) break;
    await expect.poll(() => fake.commands.exportsOpen.count).toBe(0);
  });

  it("close the export where its reader left before it was open", async () => {
    await client.sleep("a1");
    const open = fake.commands.export.bind(fake.commands);
    const left = Promise.withResolvers<undefined>();
    const opened = Promise.withResolvers<number>();
    fake.commands.export = async (request) => {
      opening.resolve(undefined);
      await left.promise;
      // The server is told that the connection has ended only in a turn of its own.
      await new Promise((turn) => setTimeout(turn, 50));
      const file = await open(request);
      opened.resolve(fake.commands.exportsOpen.count);
      return file;
    };
    const opening = Promise.withResolvers<undefined>();
    const leave = new AbortController();
    const exporting = client.export("a1", { inClear: true, signal: leave.signal });
    await opening.promise;
    leave.abort();
    await expect(exporting).rejects.toMatchObject({ code: "cancelled" });
    left.resolve(undefined);
    expect(await opened.promise).toBe(1);
    await expect.poll(() => fake.commands.exportsOpen.count).toBe(0);
  });

  it("refuse a name that no agent can have before anything is read", async () => {
    await expect(client.import("../x", Buffer.from("{}"))).rejects.toMatchObject({
      code: "bad_request",
    });
  });
});

it("tells what a collection freed", async () => {
  const freed = await client.gc("a1");
  expect(freed).toMatchObject({ name: "a1", freedBytes: 4096, layers: { before: 3, after: 2 } });
  await expect(client.gc("nobody")).rejects.toMatchObject({ code: "agent_not_found" });
});
