/** A VM process that stops, or says what is not so, in the middle of a long deed: whoever waits is told. */
import { createHash } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { makeId } from "@perdure/protocol";
import { createSystemClock } from "../../clock.ts";
import type { Clock } from "../../core/ports/clock.ts";
import { loadDeviceState } from "./device-state.ts";
import { Disk } from "./disk.ts";
import { QmpClient } from "./qmp.ts";
import { RunFolder } from "./run-folder.ts";

const system = createSystemClock();
/** A thousand times as fast. */
const clock: Clock = { ...system, wait: (ms, signal) => system.wait(ms / 1000, signal) };

let folder: RunFolder;
let place: string;
let servers: Server[];
let sockets: Socket[];
const REFUSED = Symbol("refused");
/** What is said to a command; undefined: nothing. */
let answer: (command: string, socket: Socket) => unknown;

beforeEach(async () => {
  place = await mkdtemp(join(tmpdir(), "perdure-hung-"));
  folder = new RunFolder(place, makeId("vm", 0, new Uint8Array(10)));
  await folder.make({ uid: 0, gid: 0, tenantGid: 0 }, false);
  servers = [];
  sockets = [];
  answer = () => ({});
  await listen(folder.monitorPath, (socket) => {
    socket.write('{"QMP": {}}\n');
    socket.on("data", (chunk) => {
      for (const line of chunk.toString().trim().split("\n")) {
        const { execute, id } = JSON.parse(line) as { execute: string; id: number };
        const said = execute === "qmp_capabilities" ? {} : answer(execute, socket);
        const sent = said === REFUSED ? { error: {}, id } : { return: said, id };
        if (said !== undefined) socket.write(`${JSON.stringify(sent)}\n`);
      }
    });
  });
});

afterEach(async () => {
  for (const socket of sockets) socket.destroy();
  for (const server of servers) server.close();
  await rm(place, { recursive: true });
});

async function listen(path: string, serve: (socket: Socket) => void): Promise<void> {
  const server = createServer((socket) => {
    sockets.push(socket);
    socket.on("error", () => undefined);
    serve(socket);
  });
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(path, resolve));
}

const layers = ["/below", "/between", "/top"];
/** As the monitor lists them, each in use. */
const nodes = layers.map((path) => {
  const name = createHash("sha256").update(path).digest("hex").slice(0, 20);
  return { "node-name": `layer-${name}` };
});

async function merge(): Promise<void> {
  const qmp = await QmpClient.connect(folder.monitorPath, clock, 5_000_000);
  const notes = { writeLayers: () => Promise.resolve(), readLayers: () => Promise.resolve(layers) };
  const disk = new Disk(qmp, notes, clock, "unknown");
  const otherwise = answer;
  answer = (command, socket) => {
    if (command === "query-named-block-nodes") return nodes;
    return command === "blockdev-del" ? REFUSED : otherwise(command, socket);
  };
  try {
    await disk.mergeLayers("/below", "/top");
  } finally {
    qmp.close();
  }
}

test("a merge of layers under which the process stops answering fails", async () => {
  // It takes the job on, and nothing is heard of it any more.
  answer = (command) => (command === "block-stream" ? {} : undefined);
  await expect(merge()).rejects.toThrow(/"query-status"/);
});

test("a merge of layers goes on for as long as the process answers", async () => {
  let looks = 0;
  answer = (command, socket) => {
    if (command === "query-status" && ++looks === 20) {
      const event = { event: "BLOCK_JOB_COMPLETED", data: { device: "merge-layers" } };
      socket.write(`${JSON.stringify(event)}\n`);
    }
    return {};
  };
  await merge();
  expect(looks).toBe(20);
});

test("a merge of layers whose process ends before it has begun fails, and that alone", async () => {
  answer = (command, socket) => {
    if (command === "block-stream") socket.destroy();
    return undefined;
  };
  await expect(merge()).rejects.toThrow(/monitor is closed/);
});

test("device state that a process says it has loaded, and never reads, is refused", async () => {
  const event = { event: "MIGRATION", data: { status: "completed" } };
  await listen(folder.incomingPath, (socket) => {
    socket.pause();
    for (const each of sockets) if (each !== socket) each.write(`${JSON.stringify(event)}\n`);
  });
  const qmp = await QmpClient.connect(folder.monitorPath, clock, 5_000_000);
  const loading = loadDeviceState(qmp, folder, new Uint8Array(8 * 1024 * 1024), clock);
  await expect(loading).rejects.toMatchObject({ code: "machine_failed" });
  qmp.close();
});
