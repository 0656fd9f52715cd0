import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { createSystemClock } from "../../clock.ts";
import { QmpClient, type QmpEvent } from "./qmp.ts";

const clock = createSystemClock();
let folder: string;
let server: Server;
let answer: (message: { execute: string; id: number }, socket: Socket) => void;
const sockets = new Set<Socket>();

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "perdure-qmp-"));
  answer = ({ id }, socket) => socket.write(`${JSON.stringify({ return: {}, id })}\r\n`);
  server = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => undefined);
    socket.write('{"QMP": {"version": {}}}\r\n');
    socket.on("data", (chunk) => {
      for (const line of chunk.toString().trim().split("\n")) {
        const message = JSON.parse(line) as { execute: string; id: number };
        if (message.execute === "qmp_capabilities") {
          socket.write(`${JSON.stringify({ return: {}, id: message.id })}\n`);
        } else answer(message, socket);
      }
    });
  });
  await new Promise<void>((resolve) => server.listen(join(folder, "qmp"), resolve));
});

afterEach(async () => {
  for (const socket of sockets) socket.destroy();
  sockets.clear();
  server.close();
  await rm(folder, { recursive: true });
});

const open = (): Promise<QmpClient> => QmpClient.connect(join(folder, "qmp"), clock, 30_000);

test("answers reach their commands by id, in any order", async () => {
  const held: { id: number; execute: string }[] = [];
  answer = (message, socket) => {
    held.push(message);
    if (held.length < 2) return;
    for (const { id, execute } of held.toReversed()) {
      socket.write(`${JSON.stringify({ return: execute, id })}\n`);
    }
  };
  const client = await open();
  const answers = await Promise.all([client.execute("one"), client.execute("two")]);
  expect(answers).toEqual(["one", "two"]);
  client.close();
});

test("events arrive, also between the pieces of a line", async () => {
  const client = await open();
  const events: QmpEvent[] = [];
  client.onEvent((event) => events.push(event));
  const [socket] = sockets;
  socket?.write('{"event": "SHUT');
  await clock.wait(20);
  socket?.write('DOWN", "data": {"reason": "guest-reset"}}\n{"event": "STOP"}\n');
  await expect.poll(() => events.length).toBe(2);
  expect(events[0]).toEqual({ name: "SHUTDOWN", data: { reason: "guest-reset" } });
  client.close();
});

test("a refusal carries QEMU's reason", async () => {
  answer = ({ id }, socket) =>
    socket.write(`${JSON.stringify({ error: { class: "GenericError", desc: "no way" }, id })}\n`);
  const client = await open();
  await expect(client.execute("stop")).rejects.toThrow('QEMU refused "stop": no way');
  client.close();
});

test("after a missed deadline nothing is waited for until all that is owed was answered", async () => {
  const late: (() => void)[] = [];
  const inTime = answer;
  answer = ({ id }, socket) => {
    late.push(() => void socket.write(`${JSON.stringify({ return: {}, id })}\n`));
  };
  const client = await open();
  const missed = ["stop", "save"].map((command) => client.execute(command, {}, 50));
  const outcomes = await Promise.allSettled(missed);
  expect(outcomes.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
  answer = inTime;
  await expect(client.execute("cont")).rejects.toThrow("hangs");
  // Both tell what a user can do: verbs that there are.
  for (const said of [outcomes[0], (await Promise.allSettled([client.execute("cont")]))[0]]) {
    expect(said).toMatchObject({
      reason: { hint: expect.stringMatching(/perdure quarantine AGENT/) as string },
    });
  }
  late[0]?.();
  await clock.wait(20);
  await expect(client.execute("cont")).rejects.toThrow("hangs");
  late[1]?.();
  await expect.poll(() => client.execute("cont").catch(String)).toEqual({});
  client.close();
});

test.each([
  ["a line without end", "x".repeat(2 * 1024 * 1024)],
  ["a line that is not JSON", "hello\n"],
  ["a line that is no object", "[1]\n"],
])("%s ends the connection as a violation", async (_, bytes) => {
  answer = () => undefined;
  const client = await open();
  const waiting = client.execute("stop");
  waiting.catch(() => undefined);
  const [socket] = sockets;
  socket?.write(bytes);
  expect((await client.ended).kind).toBe("violation");
  await expect(waiting).rejects.toThrow("monitor is closed");
  await expect(client.execute("cont")).rejects.toThrow("monitor is closed");
});

test("when the other end goes away every waiting command fails", async () => {
  answer = () => undefined;
  const client = await open();
  const waiting = client.execute("stop");
  for (const socket of sockets) socket.destroy();
  await expect(waiting).rejects.toThrow("monitor is closed");
  expect((await client.ended).kind).toBe("ended");
});

test("where nobody listens, that is said, and the system's word is the cause", async () => {
  const connected = QmpClient.connect(join(folder, "nobody"), clock, 30_000);
  await expect(connected).rejects.toMatchObject({
    code: "machine_failed",
    message: "Cannot connect to the monitor of the VM process: nobody is there",
    cause: { code: "ENOENT" },
  });
});

test("a connection that breaks is told in words, with what the system said beside them", async () => {
  // The other end goes away with a command unread.
  answer = () => undefined;
  const client = await open();
  for (const socket of sockets) socket.pause();
  await clock.wait(20);
  const waiting = client.execute("stop");
  await clock.wait(20);
  for (const socket of sockets) socket.destroy();
  await expect(waiting).rejects.toThrow("The monitor is closed: the VM process closed it");
});
