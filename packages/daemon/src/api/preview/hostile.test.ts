/** Visitors that mean harm, or do not know better, by bytes of their own on the TCP listener. The program inside is gullible. */
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:http";
import type { RequestListener, Server } from "node:http";
import { connect } from "node:net";
import type { AddressInfo, Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { portLabel } from "@perdure/protocol";
import type { AgentId } from "@perdure/protocol";
import { openFakeServer } from "../../../../../test/contract/api/fake-server.ts";
import type { FakeServer } from "../../../../../test/contract/api/fake-server.ts";
import { createMemoryStateStore } from "../../../../../test/contract/memory-state-store.ts";
import { sampleAgent } from "../../../../../test/contract/state-store-sample.ts";

const TOKEN = "pt_0123456789abcdef0123456789abcdef0123456789abcdef";
const MIB = 1024 * 1024;

let folder: string;
let fake: FakeServer;
let agent: AgentId;
let daemonPort: number;
let inside: Server;
let insidePort: number;
/** Method and path of what arrived inside. */
let arrived: string[];
let serve: RequestListener;
let sockets: Socket[];

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "perdure-hostile-"));
  [arrived, sockets] = [[], []];
  serve = (_request, response) => void response.end("inside");
  const state = createMemoryStateStore();
  fake = await openFakeServer(join(folder, "run.sock"), folder, {
    state,
    tcp: { host: "127.0.0.1", port: 0, tls: null, corsOrigins: [] },
  });
  daemonPort = Number(new URL(fake.server.url ?? "").port);
  ({ id: agent } = await fake.commands.execute({
    ...{ kind: "create", tenant: "default", name: "a1", image: "debian", onCrash: "checkpoint" },
    shape: { memoryBytes: 512 * MIB, cpus: 1, diskBytes: 8192 * MIB },
  }));
  inside = createServer({ insecureHTTPParser: true }, (request, response) => {
    arrived.push(`${request.method ?? ""} ${request.url ?? ""}`);
    request.resume();
    serve(request, response);
  });
  inside.listen(0, "127.0.0.1");
  await once(inside, "listening");
  insidePort = (inside.address() as AddressInfo).port;
  const ports = { [insidePort]: { public: false, token: TOKEN } };
  const { generation } = await fake.commands.show({ tenant: "default", agent: "a1" });
  const row = sampleAgent("a1", { id: agent, ports, generation });
  await state.commit([{ kind: "insert-agent", agent: row }]);
});
afterEach(async () => {
  for (const socket of sockets) socket.destroy();
  inside.close();
  inside.closeAllConnections();
  await fake.close();
  await rm(folder, { recursive: true });
});

const host = (): string => `${portLabel(agent, insidePort)}.localhost`;
const admitted = (): string => `Host: ${host()}\r\nX-Perdure-Token: ${TOKEN}\r\n`;

function open(): Socket {
  const socket = connect({ port: daemonPort, host: "127.0.0.1", allowHalfOpen: true });
  socket.on("error", () => undefined);
  sockets.push(socket);
  return socket;
}

/** Says it, and no more; what is answered until the other side ends, or has nothing to say for a while. */
async function say(bytes: string | Buffer, patienceMs = 1_000): Promise<string> {
  const socket = open();
  socket.write(bytes);
  const bored = setTimeout(() => socket.destroy(), patienceMs);
  let answer = "";
  socket.setEncoding("utf8").on("data", (piece: string) => {
    answer += piece;
    bored.refresh();
  });
  await new Promise((closed) => socket.once("end", closed).once("close", closed));
  clearTimeout(bored);
  socket.destroy();
  return answer;
}

const statuses = (answer: string): string[] =>
  [...answer.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map(([, status = ""]) => status);

const SMUGGLED = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n";

describe("a request in another", () => {
  test.each<[string, string, string]>([
    ["a length and chunks", `Content-Length: 6\r\nTransfer-Encoding: chunked\r\n`, `0\r\n\r\n`],
    ["chunks and a length", `Transfer-Encoding: chunked\r\nContent-Length: 4\r\n`, `0\r\n\r\n`],
    ["two lengths", `Content-Length: 0\r\nContent-Length: ${SMUGGLED.length}\r\n`, ""],
    ["a list of lengths", `Content-Length: 0, ${SMUGGLED.length}\r\n`, ""],
    ["a length with a sign", `Content-Length: +0\r\n`, ""],
    ["a length that is none", `Content-Length: 0x0\r\n`, ""],
    ["a coding that is none", `Transfer-Encoding: xchunked\r\n`, `0\r\n\r\n`],
    ["a coding before another", `Transfer-Encoding: chunked, identity\r\n`, `0\r\n\r\n`],
    ["two codings", `Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n`, `0\r\n\r\n`],
    ["a space before the colon", `Transfer-Encoding : chunked\r\n`, `0\r\n\r\n`],
    ["a folded header", `X: y\r\n Transfer-Encoding: chunked\r\n`, ""],
    ["a header that ends in a bare LF", `X: y\nContent-Length: ${SMUGGLED.length}\r\n`, ""],
    ["a header that ends in a bare CR", `X: y\rContent-Length: ${SMUGGLED.length}\r\n`, ""],
    ["a NUL in a header", `X: y\0\r\nContent-Length: 0\r\n`, ""],
    ["a size of a chunk that is none", `Transfer-Encoding: chunked\r\n`, `0x1\r\na\r\n0\r\n\r\n`],
    ["a size of a chunk beyond all", `Transfer-Encoding: chunked\r\n`, `fffffffffffffffff\r\n`],
    ["a chunk that ends in a bare LF", `Transfer-Encoding: chunked\r\n`, `1\na\n0\n\n`],
    ["trailers that are headers", `Transfer-Encoding: chunked\r\n`, `0\r\nHost: evil\r\n\r\n`],
    [
      "the length as of the connection",
      `Connection: content-length\r\nContent-Length: 5\r\n`,
      "hello",
    ],
    [
      "the coding as of the connection",
      `Connection: transfer-encoding\r\nTransfer-Encoding: chunked\r\n`,
      `0\r\n\r\n`,
    ],
    ["a method that has none with a body", `Content-Length: ${SMUGGLED.length}\r\n`, ""],
  ])(
    "by %s never arrives as one of its own with the rights of the first",
    async (_what, headers, body) => {
      const answer = await say(
        `POST /first HTTP/1.1\r\n${admitted()}${headers}\r\n${body}${SMUGGLED}`,
      );
      // The second is nobody's: it may be answered here, by our own API.
      expect(statuses(answer)[0], answer).toMatch(/^(200|400|408|431)$/);
      expect(arrived.filter((line) => line !== "POST /first")).toEqual([]);
      expect(answer).not.toMatch(/inside[^]*inside/);
    },
  );

  test("is answered by itself where it is whole, with rights of its own", async () => {
    const second = (more: string): string =>
      `GET /second HTTP/1.1\r\nHost: ${host()}\r\n${more}\r\n`;
    const answer = await say(
      `GET /first HTTP/1.1\r\n${admitted()}\r\n${second("")}` +
        `GET /v1/agents HTTP/1.1\r\nHost: localhost\r\n\r\n${second(`X-Perdure-Token: ${TOKEN}\r\n`)}`,
    );
    expect(statuses(answer)[0]).toBe("200");
    expect(statuses(answer)[1]).toBe("401");
    // What is behind a refusal may be carried out, but then with what lets it in itself.
    expect(arrived.slice(0, 2)).toEqual(["GET /first", "GET /second"].slice(0, arrived.length));
  });
});

describe("what is aimed at", () => {
  test("is said once: a second host is refused", async () => {
    for (const hosts of [
      [host(), "localhost"],
      ["localhost", host()],
      [host(), host()],
    ]) {
      const lines = hosts.map((name) => `Host: ${name}\r\n`).join("");
      const answer = await say(
        `GET / HTTP/1.1\r\n${lines}X-Perdure-Token: ${TOKEN}\r\nConnection: close\r\n\r\n`,
      );
      expect(statuses(answer)).toEqual(["400"]);
    }
    expect(arrived).toEqual([]);
    expect(statuses(await say(`GET / HTTP/1.1\r\n\r\n`))).toEqual(["400"]);
  });

  test("is a path: neither an address nor a tunnel", async () => {
    for (const line of [
      `GET http://127.0.0.1/v1/health HTTP/1.1`,
      `GET http://${host()}/ HTTP/1.1`,
      "GET evil HTTP/1.1",
      "GET //../ HTTP/9.9",
      "CONNECT 127.0.0.1:22 HTTP/1.1",
      "PRI * HTTP/2.0",
    ]) {
      const answer = await say(`${line}\r\n${admitted()}Connection: close\r\n\r\n`);
      expect(
        statuses(answer).every((status) => /^(400|405|501|505)$/.test(status)),
        line,
      ).toBe(true);
    }
    expect(arrived).toEqual([]);
  });
});

describe("sizes", () => {
  test("of headers are limited, of a path with them, and the next visitor is served", async () => {
    for (const [line, headers] of [
      ["GET / HTTP/1.1", `X: ${"y".repeat(20_000)}\r\n`],
      [`GET /${"y".repeat(20_000)} HTTP/1.1`, ""],
      ["GET / HTTP/1.1", "X: y\r\n".repeat(5_000)],
    ]) {
      const answer = await say(`${line ?? ""}\r\n${admitted()}${headers ?? ""}\r\n`);
      expect(statuses(answer)).toEqual(["413"]);
    }
    expect(arrived).toEqual([]);
    const fits = `X: ${"y".repeat(10_000)}\r\nConnection: close\r\n`;
    expect(statuses(await say(`GET / HTTP/1.1\r\n${admitted()}${fits}\r\n`))).toEqual(["200"]);
  });

  test("of an answer's headers are limited", async () => {
    serve = (_request, response) => {
      response.writeHead(200, { x: "y".repeat(70_000) }).end("inside");
    };
    const answer = await say(`GET / HTTP/1.1\r\n${admitted()}Connection: close\r\n\r\n`);
    expect(statuses(answer)).toEqual(["502"]);
    expect(answer).toContain("connection_reset");
  });
});

describe("slow and half-open visitors", () => {
  test("hold up nobody", async () => {
    const slow = Array.from({ length: 100 }, (_, at) => {
      const socket = open();
      const head = `POST /slow HTTP/1.1\r\n${admitted()}Content-Length: 100\r\n`;
      // From nothing at all to all but the last byte of the body.
      if (at > 0) socket.write(`${head}\r\n${"x".repeat(99)}`.slice(0, at * 5));
      return socket;
    });
    await Promise.all(slow.map((socket) => once(socket, "connect")));
    for (let i = 0; i < 5; i++) {
      const answer = await say(`GET /quick HTTP/1.1\r\n${admitted()}Connection: close\r\n\r\n`);
      expect(statuses(answer)).toEqual(["200"]);
    }
    for (const socket of slow) socket.resetAndDestroy();
    await expect
      .poll(() => new Promise((found) => inside.getConnections((_, count) => found(count))))
      .toBe(0);
  });

  test("that vanish, or end before their answer, are gone inside", async () => {
    const gone = Promise.withResolvers<undefined>();
    const begun = Promise.withResolvers<undefined>();
    serve = (request) => {
      request.once("close", () => gone.resolve(undefined));
      begun.resolve(undefined);
    };
    const socket = open();
    socket.write(`POST /upload HTTP/1.1\r\n${admitted()}Content-Length: 1000\r\n\r\nhalf`);
    await begun.promise;
    socket.resetAndDestroy();
    await gone.promise;
  });

  test("get all of a WebSocket's last words, however slowly they read, though its program is gone", async () => {
    const peers = new WebSocketServer({ server: inside });
    const words = Buffer.alloc(16 * MIB, 7);
    peers.on("connection", (peer) => {
      peer.send(words);
      peer.close();
    });
    const socket = new WebSocket(`ws://127.0.0.1:${daemonPort}/`, {
      headers: { host: host(), "x-perdure-token": TOKEN },
    });
    await once(socket, "open");
    socket.pause();
    // It has said all that it can, and is held up.
    await new Promise((later) => setTimeout(later, 300));
    const message = once(socket, "message");
    socket.resume();
    const [data] = (await message) as [Buffer];
    expect(data.equals(words)).toBe(true);
    socket.close();
  });
});

describe("a program that may have done it", () => {
  test.each(["POST", "PUT", "DELETE", "PATCH"])(
    "is not asked a second time by %s where its connection breaks",
    async (method) => {
      const first = `GET /first HTTP/1.1\r\n${admitted()}Connection: close\r\n\r\n`;
      expect(statuses(await say(first))).toEqual(["200"]);
      serve = (request) => void request.socket.destroy();
      const answer = await say(
        `${method} /once HTTP/1.1\r\n${admitted()}Content-Length: 0\r\nConnection: close\r\n\r\n`,
      );
      expect(statuses(answer)).toEqual(["502"]);
      expect(arrived).toEqual(["GET /first", `${method} /once`]);
    },
  );
});

test("bytes of any kind are answered or cut, none gets in that has no token, and the next visitor is served", async () => {
  const whole = Buffer.from(
    `POST /fuzz HTTP/1.1\r\n${admitted()}Content-Length: 5\r\nConnection: close\r\n\r\nhello`,
  );
  const seed = Math.floor(Math.random() * 2 ** 31);
  let state = seed;
  const below = (limit: number): number => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fffffff;
    return Math.floor((state / 0x80000000) * limit);
  };
  const pieces = ["\r", "\n", "\r\n", "\0", " ", ":", ",", "\x7f", "ÿ", "chunked", "HTTP/1.1"];
  let admittedRounds = 0;
  for (let round = 0; round < 400; round++) {
    let bytes = Buffer.from(whole);
    for (let change = below(4) + 1; change > 0; change--) {
      const at = below(bytes.length);
      const piece = Buffer.from(pieces[below(pieces.length)] ?? "", "latin1");
      const cut = below(3);
      bytes = Buffer.concat([bytes.subarray(0, at), piece, bytes.subarray(at + cut)]);
    }
    if (bytes.includes(TOKEN)) admittedRounds++;
    const found = statuses(await say(bytes, 150));
    expect(found.length, `seed ${seed}, round ${round}`).toBeLessThanOrEqual(2);
    for (const status of found) {
      expect(status, `seed ${seed}, round ${round}`).toMatch(/^(2|4|5)\d\d$/);
    }
    if (!bytes.includes(TOKEN)) {
      expect(found, `seed ${seed}, round ${round}`).not.toContain("200");
    }
  }
  const next = await say(`GET / HTTP/1.1\r\n${admitted()}Connection: close\r\n\r\n`);
  expect(next).toContain("inside");
  expect(arrived.length).toBeGreaterThan(5);
  expect(arrived.length).toBeLessThanOrEqual(admittedRounds + 1);
});
