/** Connections to ports, over the real API with servers of this host in place of programs inside. */
import { createHash } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { openFakeServer, type FakeServer } from "../../../test/contract/api/fake-server.ts";
import { Perdure, PerdureError, type PortConnection } from "./index.ts";

let folder: string;
let fake: FakeServer;
let perdure: Perdure;
let servers: Server[];

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "perdure-port-"));
  const socketPath = join(folder, "run.sock");
  servers = [];
  fake = await openFakeServer(socketPath, folder);
  perdure = new Perdure({ socketPath });
  await perdure.create({ name: "a1" });
});
afterEach(async () => {
  await perdure.close();
  await fake.close();
  for (const server of servers) server.close();
  await rm(folder, { recursive: true });
});

async function listen(serve: (socket: Socket) => void): Promise<number> {
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on("error", () => undefined);
    serve(socket);
  });
  servers.push(server);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return (server.address() as AddressInfo).port;
}

async function all(connection: PortConnection): Promise<Buffer> {
  return Buffer.concat(await Array.fromAsync(connection));
}

test("megabytes go both ways and stay whole", async () => {
  const port = await listen((socket) => socket.pipe(socket));
  const connection = await perdure.connect("a1", port);
  const sent = createHash("sha256");
  const feed = async (): Promise<void> => {
    for (let i = 0; i < 80; i++) {
      const piece = crypto.getRandomValues(new Uint8Array(60_000));
      sent.update(piece);
      await connection.write(piece);
    }
    await connection.write(Buffer.alloc(1_000_000, 3));
    sent.update(Buffer.alloc(1_000_000, 3));
    await connection.end();
  };
  const [back] = await Promise.all([all(connection), feed()]);
  expect(createHash("sha256").update(back).digest("hex")).toBe(sent.digest("hex"));
});

test("each side ends by itself", async () => {
  const port = await listen((socket) => {
    socket.write("first");
    socket.on("data", (bytes) => socket.write(bytes));
    socket.on("end", () => socket.end("last"));
  });
  const connection = await perdure.connect("a1", port);
  await connection.write("middle");
  await connection.end();
  expect((await all(connection)).toString()).toBe("firstmiddlelast");
  const other = await listen((socket) => {
    socket.end("bye");
    socket.on("data", (bytes) => heard.resolve(bytes.toString()));
  });
  const heard = Promise.withResolvers<string>();
  const second = await perdure.connect("a1", other);
  expect((await all(second)).toString()).toBe("bye");
  await second.write("after the end");
  expect(await heard.promise).toBe("after the end");
  second.close();
});

test("who does not read holds the program up, and leaving breaks it off", async () => {
  let written = 0;
  const gone = Promise.withResolvers<undefined>();
  const port = await listen((socket) => {
    const block = Buffer.alloc(1 << 20);
    const more = (): void => {
      while (!socket.destroyed && socket.write(block)) written += block.length;
      written += block.length;
    };
    socket.on("drain", more);
    socket.on("close", () => gone.resolve(undefined));
    more();
  });
  const connection = await perdure.connect("a1", port);
  for (let before = -1; before !== written;) {
    before = written;
    await new Promise((resolve) => setTimeout(resolve, 150));
  }
  expect(written).toBeLessThan(64 << 20);
  for await (const bytes of connection) {
    expect(bytes.length).toBeGreaterThan(0);
    break;
  }
  await gone.promise;
  await expect(connection.write("x")).rejects.toMatchObject({ code: "interrupted" });
});

test("nobody listens, no such agent, no such port, broken off", async () => {
  const port = await listen((socket) => void socket.once("data", () => socket.resetAndDestroy()));
  const connection = await perdure.connect("a1", port);
  await connection.write("x");
  await expect(all(connection)).rejects.toMatchObject({ code: "connection_reset" });
  servers[0]?.close();
  const codes = [
    [() => perdure.connect("a1", port), "port_refused"],
    [() => perdure.connect("a2", port), "agent_not_found"],
    [() => perdure.connect("a1", 70_000), "bad_request"],
    [() => perdure.connect("a1", 0), "bad_request"],
  ] as const;
  for (const [call, code] of codes) {
    const error: unknown = await call().then(
      () => null,
      (cause: unknown) => cause,
    );
    expect(error).toBeInstanceOf(PerdureError);
    expect(error).toMatchObject({ code });
  }
  await perdure.sleep("a1");
  await expect(perdure.connect("a1", port, { wakes: false })).rejects.toMatchObject({
    code: "agent_state",
  });
});

test("a daemon that stops interrupts it", async () => {
  const port = await listen((socket) => socket.write("hello"));
  const connection = await perdure.connect("a1", port);
  const reading = all(connection);
  await Promise.all([
    expect(reading).rejects.toMatchObject({ code: "interrupted" }),
    fake.server.close(0),
  ]);
});
