import { createSocket, type Socket } from "node:dgram";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { addressesIn, resolveName } from "./resolve.ts";

let folder: string;
let server: Socket;
/** Address of each name that the server knows, and what it was asked. */
const known = new Map<string, string>();
let asked: string[] = [];

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "perdure-resolve-"));
  known.clear();
  asked = [];
  server = createSocket("udp4");
  server.on("message", (question, from) => server.send(answerTo(question), from.port));
  server.bind(0, "127.0.0.1");
  await once(server, "listening");
});
afterEach(async () => {
  server.close();
  await rm(folder, { recursive: true, force: true });
});

/** One A record where the name is known, else NXDOMAIN. */
function answerTo(question: Buffer): Buffer {
  const labels: string[] = [];
  let at = 12;
  for (let length = question[at++] ?? 0; length > 0; length = question[at++] ?? 0) {
    labels.push(question.toString("latin1", at, at + length));
    at += length;
  }
  const name = labels.join(".").toLowerCase();
  const isA = question.readUInt16BE(at) === 1;
  asked.push(`${isA ? "A" : "other"} ${name}`);
  const address = known.get(name);
  const head = Buffer.from(question.subarray(0, 12));
  head.writeUInt16BE(address === undefined ? 0x8183 : 0x8180, 2);
  head.writeUInt16BE(address !== undefined && isA ? 1 : 0, 6);
  head.writeUInt32BE(0, 8);
  const record = Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
  const bytes = Buffer.from((address ?? "").split(".").map(Number));
  return Buffer.concat([
    head,
    question.subarray(12, at + 4),
    ...(address !== undefined && isA ? [record, bytes] : []),
  ]);
}

async function resolve(name: string, hosts = ""): Promise<string[]> {
  const hostsPath = join(folder, "hosts");
  await writeFile(hostsPath, hosts);
  const { port } = server.address();
  return resolveName(name, { hostsPath, servers: [`127.0.0.1:${port}`] });
}

test("the hosts file goes first, and nobody is asked then", async () => {
  known.set("db.internal", "192.0.2.9");
  const hosts =
    "# db.internal\n10.0.0.1 Db.Internal other # x\n::1\tdb.internal\n10.0.0.2 xdb.internal\n";
  expect(await resolve("db.internal", hosts)).toEqual(["10.0.0.1", "::1"]);
  expect(asked).toEqual([]);
  expect(addressesIn(hosts, "internal")).toEqual([]);
});

test("name servers know the rest, both kinds of addresses are asked for", async () => {
  known.set("api.example.com", "192.0.2.1");
  expect(await resolve("api.example.com")).toEqual(["192.0.2.1"]);
  expect(asked.sort()).toEqual(["A api.example.com", "other api.example.com"]);
});

test.each(["nobody.example.com", "2130706433", "0x7f000001"])(
  "%s, which nobody knows, is no address either",
  async (name) => {
    await expect(resolve(name)).rejects.toThrow(`No address of "${name}" is known`);
  },
);
