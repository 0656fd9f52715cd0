/** The client against the real server, with commands that need no VM. */
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:http";
import { connect, createServer as createNetServer } from "node:net";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { PerdureError } from "@perdure/protocol";
import type { AgentEvent, EventGap, EventKind } from "@perdure/protocol";
import { openFakeServer } from "../../../test/contract/api/fake-server.ts";
import type { FakeCommands, FakeServer } from "../../../test/contract/api/fake-server.ts";
import { sampleEvent } from "../../../test/contract/state-store-event.ts";
import { Perdure } from "./perdure.ts";
import type { Output } from "./output.ts";

let folder: string;
let commands: FakeCommands;
let fake: FakeServer;
let perdure: Perdure;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "perdure-sdk-"));
  const socketPath = join(folder, "run", "perdure.sock");
  fake = await openFakeServer(socketPath, folder);
  commands = fake.commands;
  perdure = new Perdure({ socketPath });
  await perdure.create({ name: "a1" });
});
afterEach(async () => {
  await perdure.close();
  await fake.close();
  await rm(folder, { recursive: true });
});

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const list: T[] = [];
  for await (const item of items) list.push(item);
  return list;
}
const text = (bytes: Uint8Array): string => Buffer.from(bytes).toString();

describe("errors", () => {
  it("rebuilds the daemon's error whole", async () => {
    const sent = new PerdureError("agent_state", 'Cannot sleep agent "a1": state is stopped', {
      hint: "Start it first.",
      details: { state: "stopped" },
    });
    commands.failNext(sent);
    const met: unknown = await perdure.sleep("a1").catch((error: unknown) => error);
    expect(met).toBeInstanceOf(PerdureError);
    expect((met as PerdureError).toJSON()).toEqual(sent.toJSON());
  });

  it("says that no daemon is reachable, by socket and by URL", async () => {
    for (const options of [
      { socketPath: join(folder, "none.sock") },
      { url: "http://127.0.0.1:1" },
    ]) {
      await using other = new Perdure(options);
      await expect(other.health()).rejects.toMatchObject({ code: "daemon_unreachable" });
    }
  });

  it("tells a cut connection from a daemon that is not there", async () => {
    const begun = Promise.withResolvers<undefined>();
    commands.execute = () => {
      begun.resolve(undefined);
      return new Promise(() => undefined);
    };
    const sleeping = perdure.sleep("a1");
    const refused = expect(sleeping).rejects.toMatchObject({ code: "interrupted", retry: "check" });
    await begun.promise;
    await fake.close();
    await refused;
  });

  it("is cancelled by its signal", async () => {
    commands.execute = () => new Promise(() => undefined);
    const signal = AbortSignal.timeout(30);
    await expect(perdure.wake("a1", { signal })).rejects.toMatchObject({ code: "cancelled" });
  });

  it("does not take another server's answers for the daemon's", async () => {
    const stranger = createServer((request, response) => {
      response.statusCode = request.url === "/v1/doctor" ? 500 : 200;
      response.end("<html>hello</html>");
    });
    await new Promise<void>((resolve) => stranger.listen(0, "127.0.0.1", resolve));
    await using other = new Perdure({
      url: `http://127.0.0.1:${(stranger.address() as AddressInfo).port}`,
    });
    await expect(other.health()).rejects.toMatchObject({ code: "internal" });
    await expect(other.doctor()).rejects.toMatchObject({ code: "internal" });
    stranger.closeAllConnections();
    stranger.close();
  });
});

describe("agents", () => {
  it("lists all pages, or one", async () => {
    for (let i = 0; i < 5; i++) await perdure.create({ name: `b${i}` });
    const names = (await all(perdure.list())).map(({ name }) => name);
    expect(names).toEqual(["a1", "b0", "b1", "b2", "b3", "b4"]);
    const original = commands.list.bind(commands);
    let pages = 0;
    commands.list = (query) => {
      pages += 1;
      return original({ ...query, limit: 2 });
    };
    expect(await all(perdure.list({ prefix: "b" }))).toHaveLength(5);
    expect(pages).toBe(3);
    const page = await perdure.listPage({ after: "b0", limit: 2 });
    expect(page).toMatchObject({ agents: [{ name: "b1" }, { name: "b2" }], next: "b2" });
  });

  it("gives an agent's checkpoints whole, however many pages they take", async () => {
    for (const name of ["one", "two", "three"]) await perdure.checkpoint("a1", { name });
    const original = commands.checkpoints.bind(commands);
    const asked: (number | undefined)[] = [];
    commands.checkpoints = (query) => {
      asked.push(query.after);
      return original({ ...query, limit: 1 });
    };
    const names = (await perdure.checkpoints("a1")).map(({ name }) => name);
    expect(names).toEqual(["one", "two", "three"]);
    expect(asked).toEqual([undefined, 1, 2]);
  });

  it("sends each verb and gives back its result", async () => {
    expect((await perdure.sleep("a1")).state).toBe("asleep");
    const { agent, report } = await perdure.wake("a1");
    expect([agent.state, report?.verdict]).toEqual(["awake", "continue"]);
    expect((await perdure.checkpoint("a1", { name: "x" })).name).toBe("x");
    expect((await perdure.checkpoint("a1")).name).toBeNull();
    expect(await perdure.checkpoints("a1")).toHaveLength(2);
    expect((await perdure.stop("a1")).state).toBe("stopped");
    expect((await perdure.start("a1")).agent.state).toBe("awake");
    await perdure.recover("a1", { from: "disk" });
    expect(commands.executed.at(-1)).toMatchObject({ kind: "recover", from: "disk" });
    await perdure.restore("a1", "before");
    expect(commands.executed.at(-1)).toMatchObject({ kind: "restore", checkpoint: "before" });
    const forked = await perdure.fork("a1", "a2", { checkpoint: "before" });
    expect(forked.agent.name).toBe("a2");
    expect(commands.executed.at(-1)).toMatchObject({ kind: "fork", checkpoint: "before" });
    await perdure.checkpoint("a1", { name: "dropped" });
    expect((await perdure.drop("a1", "dropped")).name).toBe("a1");
    expect(commands.executed.at(-1)).toMatchObject({ kind: "drop", checkpoint: "dropped" });
    expect((await perdure.report("a1"))?.name).toBe("a1");
    expect((await perdure.doctor()).ready).toBe(true);
    expect((await perdure.health()).home).toBe(folder);
    expect((await perdure.remove(agent.id)).state).toBe("removed");
    await expect(perdure.show("a1")).rejects.toMatchObject({ code: "agent_not_found" });
    await perdure.shutdown();
    await expect.poll(() => fake.shutdowns()).toBe(1);
  });

  it("keeps a name with slashes in its place in the path", async () => {
    await expect(perdure.show("a1/files?path=/x")).rejects.toMatchObject({ code: "bad_request" });
    await expect(perdure.show("..")).rejects.toBeInstanceOf(PerdureError);
  });
});

describe("processes", () => {
  it("runs a program and collects what it wrote, up to a limit", async () => {
    const argv = ["sh", "-c", "printf out; printf err >&2; exit 4"];
    const result = await perdure.run("a1", argv);
    expect(result).toMatchObject({ exitCode: 4, signal: null, timedOut: false, cutBytes: 0 });
    expect([text(result.stdout), text(result.stderr)]).toEqual(["out", "err"]);
    const limited = await perdure.run("a1", ["head", "-c", "1000000", "/dev/zero"], {
      limitBytes: 10,
    });
    expect([limited.stdout.length, limited.cutBytes]).toEqual([10, 999_990]);
    const late = await perdure.run("a1", ["sleep", "60"], { timeoutMs: 50 });
    expect(late).toMatchObject({ timedOut: true, signal: 9 });
  });

  it("feeds stdin in chunks of any size, and reads it back", async () => {
    const process = await perdure.exec("a1", ["cat"], { stdin: true });
    const sent = Buffer.alloc(2_500_000, "0123456789");
    const writing = process.writeStdin(sent, { end: true });
    const received: Uint8Array[] = [];
    for await (const event of process.output()) {
      if (event.type === "output") received.push(event.bytes);
    }
    await writing;
    expect(Buffer.concat(received).equals(sent)).toBe(true);
    await expect(process.writeStdin("more")).rejects.toMatchObject({ code: "stdin_closed" });
  });

  it("attaches again by offset with no gap and no repeat", async () => {
    const { process } = await perdure.exec(
      "a1",
      ["sh", "-c", "printf abcdef; read x; printf ghi"],
      {
        stdin: true,
      },
    );
    const handle = perdure.process("a1", process);
    let first = "";
    for await (const event of handle.output()) {
      if (event.type === "output") first += text(event.bytes);
      if (first.length >= 6) break;
    }
    await handle.writeStdin("\n", { end: true });
    const rest = (await all(handle.output({ offset: 4 }))).map((event) =>
      event.type === "output" ? text(event.bytes) : event.type,
    );
    expect(first).toBe("abcdef");
    expect(rest.join("")).toBe("efghiexit");
  });

  it("says interrupted at a sleep: as an event to a reader, as an error to a waiter", async () => {
    const process = await perdure.exec("a1", ["sleep", "60"]);
    const original = commands.output.bind(commands);
    let readers = 0;
    commands.output = (...call) => original(...call).finally(() => (readers += 1));
    const events: Promise<Output[]> = all(process.output());
    const waiting = expect(process.wait()).rejects.toMatchObject({
      code: "interrupted",
      details: { reason: "sleep", offset: 0 },
    });
    await expect.poll(() => readers).toBe(2);
    await perdure.sleep("a1");
    await waiting;
    expect(await events).toEqual([{ type: "interrupted", reason: "sleep", offset: 0 }]);
    await process.signal("SIGKILL");
    expect(await process.wait()).toEqual({ exitCode: null, signal: 9, timedOut: false });
    expect(await perdure.processes("a1")).toMatchObject([{ process: 1, running: false }]);
  });

  it("throws what the daemon met while it read the output", async () => {
    commands.output = () =>
      Promise.resolve(
        (async function* () {
          await Promise.resolve();
          yield { type: "cut", from: 0, to: 5 } as const;
          throw new PerdureError("guest_timeout", "The guest does not answer");
        })(),
      );
    const reading = all(perdure.process("a1", 1).output());
    await expect(reading).rejects.toMatchObject({ code: "guest_timeout" });
  });

  it("reads no faster than its consumer", async () => {
    let produced = 0;
    const bytes = new Uint8Array(65_536);
    commands.output = (_target, _offset, signal) =>
      Promise.resolve(
        (async function* () {
          while (!signal.aborted && produced < 2000) {
            await Promise.resolve();
            yield { type: "output", stream: "stdout", offset: produced++ * 65_536, bytes } as const;
          }
        })(),
      );
    const output = perdure.process("a1", 1).output();
    await output.next();
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect(produced).toBeLessThan(60);
    await output.return(undefined);
  });
});

describe("files", () => {
  it("writes and reads text, bytes and streams", async () => {
    await perdure.writeFile("a1", "/a", "Größe", { mode: 0o600 });
    const file = await perdure.readFile("a1", "/a");
    expect(file.facts).toEqual({ size: 7, mode: 0o600, uid: 1000, gid: 1000, mtimeMs: 1.7e12 });
    expect(await file.text()).toBe("Größe");
    const bytes = Buffer.alloc(3 << 20, "x");
    const chunks = async function* (): AsyncGenerator<Uint8Array> {
      await Promise.resolve();
      for (let at = 0; at < bytes.length; at += 1 << 16) yield bytes.subarray(at, at + (1 << 16));
    };
    await perdure.writeFile("a1", "/b", chunks(), { size: bytes.length });
    const back = await (await perdure.readFile("a1", "/b")).collect();
    expect(bytes.equals(back)).toBe(true);
    await perdure.writeFile("a1", "/empty", "");
    expect(await (await perdure.readFile("a1", "/empty")).collect()).toHaveLength(0);
  });

  it("refuses a stream that is not as long as it said, before and after", async () => {
    const two = async function* (): AsyncGenerator<Uint8Array> {
      await Promise.resolve();
      yield Buffer.from("ab");
    };
    await expect(perdure.writeFile("a1", "/c", two())).rejects.toMatchObject({
      code: "bad_request",
    });
    for (const size of [1, 3]) {
      await expect(perdure.writeFile("a1", "/c", two(), { size })).rejects.toMatchObject({
        code: "size_mismatch",
      });
    }
    await expect(perdure.readFile("a1", "/c")).rejects.toMatchObject({ code: "path_not_found" });
  });

  it("gives the refusal, not a broken pipe, to a large upload", async () => {
    const upload = perdure.writeFile("a1", "/denied/x", Buffer.alloc(16 << 20));
    await expect(upload).rejects.toMatchObject({ code: "path_denied" });
    for (let i = 0; i < 5; i++) {
      const late = perdure.writeFile("a1", "/full/x", Buffer.alloc(16 << 20));
      await expect(late).rejects.toMatchObject({ code: "disk_full" });
    }
  });
});

describe("events", () => {
  const append = (...kinds: EventKind[]): Promise<void> =>
    fake.state.commit(
      kinds.map((kind) => {
        const event = sampleEvent({ atMs: Date.now(), kind });
        return { kind: "append-event", event };
      }),
    );
  const inShort = (event: AgentEvent | EventGap): string =>
    event.kind === "gap" ? `gap ${event.from}-${event.to}` : `${event.id} ${event.kind}`;

  it("gives all that is kept, page by page, with the gap before it", async () => {
    await append("created", "state", "failed");
    await fake.state.commit([{ kind: "collect-events", sinceMs: 0, countMax: 2 }]);
    expect((await all(perdure.events({ follow: false }))).map(inShort)).toEqual([
      "gap 1-1",
      "2 state",
      "3 failed",
    ]);
    await append(...Array.from({ length: 250 }, () => "state" as const));
    expect(await all(perdure.events({ follow: false, after: 1 }))).toHaveLength(252);
    const failed = await all(perdure.events({ follow: false, kinds: ["failed", "paused"] }));
    expect(failed.map(inShort)).toEqual(["gap 1-1", "3 failed"]);
    const page = await perdure.eventPage({ after: 3, limit: 2 });
    expect(page).toMatchObject({ next: 5, position: 5 });
  });

  it("goes on where it was after connections that broke and a daemon that was started again", async () => {
    await append("created", "state");
    const seen: string[] = [];
    const following = (async () => {
      for await (const event of perdure.events({ after: 0 })) {
        if (seen.push(inShort(event)) === 6) break;
      }
    })();
    await expect.poll(() => seen.length).toBe(2);
    const { state } = fake;
    await fake.close();
    await append("failed", "paused");
    fake = await openFakeServer(join(folder, "run", "perdure.sock"), folder, { state });
    await expect.poll(() => seen.length).toBe(4);
    await append("resumed", "removed");
    await following;
    expect(seen).toEqual([
      "1 created",
      "2 state",
      "3 failed",
      "4 paused",
      "5 resumed",
      "6 removed",
    ]);
  });

  it("begins with what comes next", async () => {
    await append("failed");
    let first: string | undefined;
    const following = (async () => {
      for await (const event of perdure.events({ kinds: ["failed"] })) {
        first = inShort(event);
        break;
      }
    })();
    // Until it is known to listen: by what it hears.
    await expect.poll(() => append("state", "failed").then(() => first)).toBeDefined();
    await following;
    expect(first).toMatch(/^\d+ failed$/);
    expect(first).not.toBe("1 failed");
  });

  it("throws at once where no daemon is, for a position that is not there, and when it is cancelled", async () => {
    await using other = new Perdure({ socketPath: join(folder, "none.sock") });
    await expect(all(other.events())).rejects.toMatchObject({ code: "daemon_unreachable" });
    await expect(all(perdure.events({ after: 99 }))).rejects.toMatchObject({ code: "bad_request" });
    const signal = AbortSignal.timeout(50);
    await expect(all(perdure.events({ signal }))).rejects.toMatchObject({ code: "cancelled" });
  });
});

/** A relay that lets requests through and breaks the connection before, or in, the first answers. */
async function openBreakingRelay(to: string, breaks: number, answerBytes: number) {
  let left = breaks;
  const keys: (string | undefined)[] = [];
  const relay = createNetServer((client) => {
    const daemon = connect(to);
    client.on("data", (chunk) => {
      const key = /idempotency-key: (\S+)/i.exec(chunk.toString("latin1"));
      if (/^(POST|PUT|DELETE|GET) /.test(chunk.toString("latin1"))) keys.push(key?.[1]);
      daemon.write(chunk);
    });
    daemon.on("data", (chunk) => {
      if (left === 0) return void client.write(chunk);
      left -= 1;
      // What the daemon did is done; its answer is lost.
      client.write(chunk.subarray(0, answerBytes), () => client.destroy());
    });
    for (const socket of [client, daemon]) {
      socket.on("error", () => undefined);
      socket.on("close", () => void (client.destroy(), daemon.destroy()));
    }
  });
  const path = join(folder, "relay.sock");
  await new Promise<void>((resolve) => relay.listen(path, resolve));
  return { path, keys, close: () => relay.close() };
}

describe("a connection that breaks", () => {
  it.each([
    [1, 0],
    [3, 0],
    [1, 40],
    [1, 400],
  ])(
    "%i times after %i bytes of the answer: the call is done once",
    async (breaks, answerBytes) => {
      const relay = await openBreakingRelay(fake.socketPath, breaks, answerBytes);
      await using other = new Perdure({ socketPath: relay.path });
      const before = commands.executed.length;
      expect((await other.create({ name: "once" })).name).toBe("once");
      expect(commands.executed).toHaveLength(before + 1);
      expect(relay.keys).toHaveLength(breaks + 1);
      expect(new Set(relay.keys).size).toBe(1);
      expect(relay.keys[0]).toMatch(/^"[0-9a-f]{32}"$/);
      relay.close();
    },
  );

  it("is told when it stays broken, as it broke first", async () => {
    const relay = await openBreakingRelay(fake.socketPath, 99, 0);
    await using other = new Perdure({ socketPath: relay.path });
    await expect(other.sleep("a1")).rejects.toMatchObject({ code: "interrupted", retry: "check" });
    expect(relay.keys.length).toBeGreaterThan(3);
    relay.close();
  });

  it("does not send again what was cancelled, nor what an iterable gave", async () => {
    const relay = await openBreakingRelay(fake.socketPath, 99, 0);
    await using other = new Perdure({ socketPath: relay.path });
    const chunks = async function* (): AsyncGenerator<Uint8Array> {
      await Promise.resolve();
      yield Buffer.from("ab");
    };
    const writing = other.writeFile("a1", "/a", chunks(), { size: 2 });
    await expect(writing).rejects.toMatchObject({ code: "interrupted" });
    expect(relay.keys).toHaveLength(1);
    const signal = AbortSignal.timeout(20);
    await expect(other.sleep("a1", { signal })).rejects.toBeInstanceOf(PerdureError);
    expect(relay.keys.length).toBeLessThan(4);
    relay.close();
  });

  it("sends each call with a key of its own, and none with a read", async () => {
    const relay = await openBreakingRelay(fake.socketPath, 0, 0);
    await using other = new Perdure({ socketPath: relay.path });
    await other.sleep("a1");
    await other.wake("a1");
    await other.show("a1");
    expect(new Set(relay.keys).size).toBe(3);
    expect(relay.keys[2]).toBeUndefined();
    relay.close();
  });
});

describe("keys", () => {
  it("are made, listed page by page, and revoked", async () => {
    for (const name of ["b", "a", "c"]) {
      const { key, token } = await perdure.keys.create({ name, scope: "read" });
      expect([key.name, token.slice(0, 4)]).toEqual([name, "pdk_"]);
    }
    expect((await all(perdure.keys.list())).map(({ name }) => name)).toEqual(["a", "b", "c"]);
    expect((await perdure.keys.page({ limit: 1, after: "a" })).next).toBe("b");
    expect((await perdure.keys.revoke("b")).name).toBe("b");
    await expect(perdure.keys.revoke("b")).rejects.toMatchObject({ code: "key_not_found" });
    expect(await all(perdure.keys.list())).toHaveLength(2);
  });

  it("let a client in over TCP, and what they do not allow is an error", async () => {
    await fake.close();
    const tcp = { host: "127.0.0.1", port: 0, tls: null, corsOrigins: [] };
    fake = await openFakeServer(join(folder, "run", "perdure.sock"), folder, { tcp, commands });
    const { token } = await perdure.keys.create({ name: "reader", scope: "read" });
    const url = fake.server.url ?? "";
    await using reader = new Perdure({ url, apiKey: token });
    expect((await reader.health()).home).toBe(folder);
    expect((await reader.show("a1")).name).toBe("a1");
    await expect(reader.sleep("a1")).rejects.toMatchObject({ code: "forbidden", status: 403 });
    await using stranger = new Perdure({ url });
    await expect(stranger.health()).rejects.toMatchObject({ code: "unauthenticated" });
    await expect(stranger.show("a1")).rejects.toMatchObject({ code: "unauthenticated" });
    const events = all(reader.events());
    const ended = expect(events).rejects.toMatchObject({ code: "unauthenticated" });
    await reader.show("a1");
    await perdure.keys.revoke("reader");
    await ended;
  });
});
