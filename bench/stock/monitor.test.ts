import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { Monitor } from "./monitor.ts";

let folder: string;
let server: Server;
let client: Socket | null;
let socketPath: string;

beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), "perdure-bench-"));
  socketPath = path.join(folder, "qmp");
  client = null;
  server = createServer((socket) => {
    client = socket;
    socket.write('{"QMP": {"version": {}}}\r\n');
    socket.on("data", (chunk) => {
      const { execute } = JSON.parse(chunk.toString()) as { execute: string };
      if (execute === "bad") socket.write('{"error": {"class": "X", "desc": "no"}}\r\n');
      else socket.write(`{"event": "NOISE"}\r\n{"return": {"did": "${execute}"}}\r\n`);
    });
  });
  await new Promise<void>((resolve) => server.listen(socketPath, resolve));
});
afterEach(async () => {
  client?.destroy();
  server.close();
  await rm(folder, { recursive: true });
});

test("answers, refusals and events find who waits for them", async () => {
  const monitor = await Monitor.connect(socketPath, folder, () => true);
  expect(await monitor.execute("stop")).toEqual({ did: "stop" });
  await expect(monitor.execute("bad")).rejects.toThrow("QEMU refused: no");
  const done = monitor.next((event, data) => event === "MIGRATION" && data["status"] === "done");
  client?.write('{"event": "MIGRATION", "data": {"status": "active"}}\r\n');
  client?.write('{"event": "MIGRATION", "data": {"status": "done"}}\r\n');
  await done;
  const file = path.join(folder, "state");
  await monitor.giveFile(file, "state");
  expect(await readFile(file, "utf8")).toBe("");
  const never = monitor.next(() => false);
  client?.destroy();
  await expect(never).rejects.toThrow("closed");
});

test("a QEMU that is gone is not waited for", async () => {
  const none = Monitor.connect(path.join(folder, "none"), folder, () => false);
  await expect(none).rejects.toThrow("ended before");
});
