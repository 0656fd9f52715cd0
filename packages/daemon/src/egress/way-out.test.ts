import { once } from "node:events";
import { createServer, type AddressInfo, type Socket } from "node:net";
import { buffer } from "node:stream/consumers";
import { egressPolicySchema } from "@perdure/protocol";
import type { z } from "zod";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { createSystemClock } from "../clock.ts";
import { SocketPairs, type PlayedInside } from "./fake/socket-pair.ts";
import { wayOutLimits } from "./limit.ts";
import type { Clock } from "../core/ports/clock.ts";
import type { ConnectionEnd, ConnectionStart } from "../core/ports/egress.ts";
import { WayOut } from "./way-out.ts";

type Rules = NonNullable<z.input<typeof egressPolicySchema>["rules"]>;

const pairs = new SocketPairs();
const closings: (() => void)[] = [];
let told: ConnectionEnd[] = [];
/** What was told to begin; where `begins` rejects, it does not. */
let begun: ConnectionStart[] = [];
let begins = (): Promise<void> => Promise.resolve();
/** Where names lead; a name with several answers leads elsewhere each time. */
let names: Record<string, string[][]> = {};

beforeEach(() => {
  told = [];
  begun = [];
  begins = () => Promise.resolve();
  names = {};
});
afterEach(() => {
  pairs.close();
  for (const close of closings.splice(0)) close();
});

function wayOut(
  rules: Rules,
  own: readonly number[] = [],
  clock: Clock = createSystemClock(),
  resolve = leads,
): WayOut {
  const ends = told;
  const tell = (end: ConnectionEnd): Promise<void> => {
    ends.push(end);
    return Promise.resolve();
  };
  return new WayOut({
    policy: egressPolicySchema.parse({ rules }),
    clock,
    isOwn: (_, port) => own.includes(port),
    teller: {
      begun: async (start) => {
        await begins();
        begun.push(start);
        return tell;
      },
      refused: tell,
      passed: () => undefined,
    },
    resolve,
  });
}

function leads(name: string): Promise<readonly string[]> {
  const [next, ...later] = names[name] ?? [];
  if (next === undefined) return Promise.reject(new Error(`${name} is unknown`));
  if (later.length > 0) names[name] = later;
  return Promise.resolve(next);
}

/** Says "hello", then what it heard. */
async function echoServer(): Promise<{ port: number; sockets: Socket[] }> {
  const sockets: Socket[] = [];
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.push(socket);
    socket.on("error", () => undefined);
    socket.write("hello ");
    socket.pipe(socket);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  closings.push(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return { port: (server.address() as AddressInfo).port, sockets };
}

/** A program inside that connects: its end, and the end of serving it. */
async function wants(way: WayOut, target: { name?: string; address?: string; port: number }) {
  const inside = await pairs.inside();
  let taken = 0;
  const { name = null, address = "198.18.0.2", port } = target;
  const served = way.serve({
    name,
    address,
    port,
    take: () => {
      taken++;
      return Promise.resolve(inside);
    },
  });
  return { inside, served, taken: () => taken };
}

/** What the program hears until its connection is over. */
function heard({ near }: PlayedInside): Promise<string> {
  return buffer(near).then(
    (bytes) => bytes.toString(),
    () => "reset",
  );
}

const loopback: Rules = [{ action: "allow", to: "127.0.0.0/8" }];

test("what is allowed is carried by name and by address, and told", async () => {
  const { port } = await echoServer();
  names["local.example"] = [["127.0.0.1"]];
  const way = wayOut(loopback);
  for (const target of [{ name: "local.example" }, { address: "127.0.0.1" }]) {
    const { inside, served } = await wants(way, { ...target, port });
    inside.near.end("there");
    expect(await heard(inside)).toBe("hello there");
    await served;
  }
  const carried = { address: "127.0.0.1", port, outcome: "carried", rule: 0, why: null };
  expect(told).toMatchObject([
    { ...carried, name: "local.example", outBytes: 5, inBytes: 11 },
    { ...carried, name: null, method: null },
  ]);
  expect(begun).toMatchObject([{ name: "local.example", unmediated: true }, { name: null }]);
  expect(way.open).toBe(0);
});

test("I11 no byte goes out before it is stored, and none where that fails", async () => {
  const { port, sockets } = await echoServer();
  const stored = Promise.withResolvers<undefined>();
  begins = () => stored.promise;
  const { inside, served } = await wants(wayOut(loopback), { address: "127.0.0.1", port });
  inside.near.end("there");
  while (sockets.length === 0) await new Promise((next) => setImmediate(next));
  const [socket] = sockets;
  const first = once(socket ?? inside.near, "data").then(() => "data");
  const silent = new Promise((resolve) => setTimeout(resolve, 100)).then(() => "silence");
  expect(await Promise.race([first, silent])).toBe("silence");
  stored.reject(new Error("The disk is full"));
  expect(await heard(inside)).toBe("reset");
  await served;
  expect(socket?.bytesRead).toBe(0);
  expect(told).toMatchObject([{ outcome: "failed", why: "The disk is full", outBytes: 0 }]);
});

test("what no rule allows is refused, and nothing is connected", async () => {
  const { port, sockets } = await echoServer();
  names["local.example"] = [["127.0.0.1"]];
  const way = wayOut([{ action: "allow", to: "*.example" }]);
  const { inside, served } = await wants(way, { name: "local.example", port });
  expect(await heard(inside)).toBe("reset");
  await served;
  expect(sockets).toEqual([]);
  expect(told).toMatchObject([
    { outcome: "denied", address: "127.0.0.1", rule: null, why: expect.any(String) as string },
  ]);
});

test("C64 the daemon itself is not reached, whatever a rule says", async () => {
  const { port, sockets } = await echoServer();
  const way = wayOut(loopback, [port]);
  const { inside, served } = await wants(way, { address: "127.0.0.1", port });
  expect(await heard(inside)).toBe("reset");
  await served;
  expect(sockets).toEqual([]);
  expect(told[0]).toMatchObject({ outcome: "denied", why: "It leads to the daemon itself" });
});

test("a name is resolved once for each connection, and each is decided on by where it leads then", async () => {
  const { port } = await echoServer();
  names["moving.example"] = [["127.0.0.1"], ["10.9.9.9"]];
  const way = wayOut(loopback);
  const first = await wants(way, { name: "moving.example", port });
  first.inside.near.end();
  expect(await heard(first.inside)).toBe("hello ");
  await first.served;
  await (
    await wants(way, { name: "moving.example", port })
  ).served;
  expect(told).toMatchObject([
    { outcome: "carried", address: "127.0.0.1" },
    { outcome: "denied", address: "10.9.9.9" },
  ]);
});

test("a name that no rule could let pass is not looked up: its name server would hear of it", async () => {
  const closed: Rules[] = [
    [],
    [{ action: "allow", to: "*.example.com" }],
    [{ action: "deny", to: "secret.example" }, ...loopback],
    [{ action: "allow", to: "127.0.0.1", ports: [9] }],
  ];
  for (const rules of closed) {
    const asked: string[] = [];
    const way = wayOut(rules, [], createSystemClock(), (name) => {
      asked.push(name);
      return Promise.resolve(["127.0.0.1"]);
    });
    const { inside, served } = await wants(way, { name: "secret.example", port: 80 });
    expect(await heard(inside)).toBe("reset");
    await served;
    expect(asked).toEqual([]);
    expect(told.pop()).toMatchObject({ outcome: "denied", name: "secret.example", address: null });
  }
});

test("of several addresses those that are allowed are tried in turn", async () => {
  const { port } = await echoServer();
  names["many.example"] = [["10.0.0.1", "127.1.2.3", "127.0.0.1"]];
  const { inside, served } = await wants(wayOut(loopback), { name: "many.example", port });
  inside.near.end();
  expect(await heard(inside)).toBe("hello ");
  await served;
  expect(told).toMatchObject([{ outcome: "carried", address: "127.0.0.1" }]);
});

test.each([
  ["unknown.example", "unknown.example is unknown"],
  ["nobody.example", "ECONNREFUSED"],
])("%s fails, and says why", async (name, why) => {
  const { port } = await echoServer();
  closings.pop()?.();
  names["nobody.example"] = [["127.0.0.1"]];
  const { inside, served } = await wants(wayOut(loopback), { name, port });
  expect(await heard(inside)).toBe("reset");
  await served;
  expect(told).toMatchObject([{ outcome: "failed", why: expect.stringContaining(why) as string }]);
});

describe("methods", () => {
  const rules: Rules = [{ action: "allow", to: "127.0.0.1", methods: ["GET"] }];

  test("what is allowed by its method arrives whole", async () => {
    const { port } = await echoServer();
    const { inside, served } = await wants(wayOut(rules), { address: "127.0.0.1", port });
    inside.near.write("G");
    await new Promise((next) => setImmediate(next));
    inside.near.end("ET / HTTP/1.1\r\n\r\n");
    expect(await heard(inside)).toBe("hello GET / HTTP/1.1\r\n\r\n");
    await served;
    expect(told).toMatchObject([
      { outcome: "carried", method: "GET", outBytes: 18, unmediated: false },
    ]);
  });

  test("each further request of a connection is looked at", async () => {
    const { port } = await echoServer();
    const { inside, served } = await wants(wayOut(rules), { address: "127.0.0.1", port });
    const get = "GET / HTTP/1.1\r\n\r\n";
    inside.near.write(get);
    await new Promise((next) => setTimeout(next, 50));
    inside.near.write(`${get}POST / HTTP/1.1\r\n\r\n`);
    const said = await heard(inside);
    expect(said === "reset" || said.endsWith(get)).toBe(true);
    expect(said).not.toContain("POST");
    await served;
    expect(told).toMatchObject([
      { outcome: "denied", method: "GET", why: "No rule allows POST", unmediated: false },
    ]);
  });

  test.each([
    ["\r\nGET / HTTP/1.1\r\n", null],
    ["POST / HTTP/1.1\r\n", "POST"],
    ["\x16\x03\x01", null],
  ])("%j is refused, and nothing of it arrives", async (says, method) => {
    const { port, sockets } = await echoServer();
    const { inside, served } = await wants(wayOut(rules), { address: "127.0.0.1", port });
    inside.near.write(says);
    expect(await heard(inside)).toBe("reset");
    await served;
    expect(sockets).toEqual([]);
    expect(told).toMatchObject([{ outcome: "denied", method }]);
  });
});

test("a new policy breaks off what it denies, and leaves the rest", async () => {
  const { port } = await echoServer();
  names["one.example"] = [["127.0.0.1"]];
  names["two.example"] = [["127.0.0.1"]];
  const way = wayOut(loopback);
  const one = await wants(way, { name: "one.example", port });
  const two = await wants(way, { name: "two.example", port });
  await Promise.all([once(one.inside.near, "readable"), once(two.inside.near, "readable")]);
  way.apply(
    egressPolicySchema.parse({ rules: [{ action: "deny", to: "one.example" }, ...loopback] }),
  );
  await one.served;
  expect(await heard(one.inside)).toBe("reset");
  expect(told).toMatchObject([{ name: "one.example", outcome: "denied" }]);
  two.inside.near.end("on");
  expect(await heard(two.inside)).toBe("hello on");
  const late = await wants(way, { name: "one.example", port });
  await late.served;
  expect(told.map(({ outcome }) => outcome)).toEqual(["denied", "carried", "denied"]);
});

test("a burst beyond the limit is refused", async () => {
  const way = wayOut([], [], { ...createSystemClock(), monotonicMs: () => 0 });
  const many = wayOutLimits.newAtOnce + 20;
  for (let i = 0; i < many; i++) await (await wants(way, { address: "10.0.0.1", port: 1 })).served;
  const refused = told.filter(({ why }) => why === "Too many were made within a moment");
  expect(refused).toHaveLength(20);
  expect(told).toHaveLength(many);
});

test("a program that left before it was served is told as failed", async () => {
  const { port } = await echoServer();
  const way = wayOut(loopback);
  await way.serve({
    name: null,
    address: "127.0.0.1",
    port,
    take: () => Promise.reject(new Error("There is no such connection")),
  });
  expect(told).toMatchObject([{ outcome: "failed", why: "There is no such connection" }]);
  expect(way.open).toBe(0);
});

test("a policy that asks for methods breaks off what was not looked at", async () => {
  const { port } = await echoServer();
  const way = wayOut(loopback);
  const one = await wants(way, { address: "127.0.0.1", port });
  await once(one.inside.near, "readable");
  way.apply(
    egressPolicySchema.parse({
      rules: [{ action: "deny", to: "*", methods: ["POST"] }, ...loopback],
    }),
  );
  await one.served;
  expect(told).toMatchObject([
    { outcome: "denied", why: expect.stringMatching(/not looked at/) as string },
  ]);
});

test("one beyond those that may be open waits for another to end", async () => {
  const { port } = await echoServer();
  const way = wayOut(loopback);
  const open = [];
  for (let i = 0; i < wayOutLimits.openMax; i++) {
    open.push(await wants(way, { address: "127.0.0.1", port }));
  }
  await Promise.all(open.map(({ inside }) => once(inside.near, "readable")));
  const late = await wants(way, { address: "127.0.0.1", port });
  late.inside.near.end("late");
  expect(late.taken()).toBe(0);
  const [first] = open;
  first?.inside.near.end();
  expect(await heard(late.inside)).toBe("hello late");
  for (const { inside } of open) inside.near.destroy();
  await Promise.all([...open, late].map(({ served }) => served));
  expect(way.open).toBe(0);
}, 60_000);
