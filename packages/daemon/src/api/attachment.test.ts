/** Programs over a WebSocket: what each end may rely on, whatever the other does. */
import { randomBytes } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { attachLimits, keyProtocol } from "@perdure/protocol";
import type { AttachRequest } from "@perdure/protocol";
import { openAttachment, openRawAttachment } from "../../../../test/contract/api/attach-client.ts";
import type { AttachClient } from "../../../../test/contract/api/attach-client.ts";
import { openFakeServer } from "../../../../test/contract/api/fake-server.ts";
import type { FakeServer } from "../../../../test/contract/api/fake-server.ts";
import { createRawClient } from "../../../../test/contract/api/raw-client.ts";
import type { RawClient } from "../../../../test/contract/api/raw-client.ts";

let folder: string;
let fake: FakeServer;
let client: RawClient;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "perdure-attach-"));
  fake = await openFakeServer(join(folder, "run", "perdure.sock"), folder);
  client = createRawClient(fake.socketPath);
  await client.post("/v1/agents", { name: "a1" });
});
afterEach(async () => {
  await fake.close();
  await rm(folder, { recursive: true });
});

const pathOf = (process: number, query = ""): string =>
  `/v1/agents/a1/processes/${process}/attach?${query}`;

async function exec(argv: readonly string[], more: object = { stdin: true }): Promise<number> {
  const answer = await client.post("/v1/agents/a1/exec", { argv, ...more });
  expect(answer.status).toBe(201);
  return (answer.json() as { process: number }).process;
}

function attach(process: number, query = ""): Promise<AttachClient> {
  return openAttachment(fake.socketPath, pathOf(process, query));
}

const running = async (): Promise<unknown> =>
  ((await client.send("GET", "/v1/agents/a1/processes")).json() as { processes: object[] })
    .processes[0];

/** Once in a second: on a host that does much else an answer takes some time. */
async function pingOften(): Promise<void> {
  const { commands, socketPath } = fake;
  await fake.close();
  fake = await openFakeServer(socketPath, folder, { commands, pingMs: 1_000 });
}

/** Output without end; counts what was asked for. */
function endlessOutput(): { produced: number; ended: boolean } {
  const counts = { produced: 0, ended: false };
  const bytes = new Uint8Array(65_536).fill(0x78);
  fake.commands.output = (_target, _offset, signal) =>
    Promise.resolve(
      (async function* () {
        try {
          while (!signal.aborted) {
            await Promise.resolve();
            const offset = counts.produced;
            counts.produced += bytes.length;
            yield { type: "output", stream: "stdout", offset, bytes } as const;
          }
        } finally {
          counts.ended = true;
        }
      })(),
    );
  return counts;
}

/** Resolves when `value` has stood still for a while. */
async function still(value: () => number): Promise<number> {
  let before = -1;
  await expect
    .poll(() => value() === before || ((before = value()), false), { interval: 150 })
    .toBe(true);
  return before;
}

describe("output", () => {
  it("comes in binary messages with offsets, then the exit, then the end", async () => {
    const process = await exec(["sh", "-c", "printf one; sleep 0.1; printf two >&2; exit 3"]);
    const { messages, closed } = await attach(process);
    expect(await closed).toBe(1000);
    expect(messages).toEqual([
      { type: "attached", process, offset: 0 },
      { type: "output", stream: "stdout", offset: 0, text: "one" },
      { type: "output", stream: "stderr", offset: 3, text: "two" },
      { type: "exit", exitCode: 3, signal: null, timedOut: false },
    ]);
  });

  it("C43 goes on for whoever attaches again at an offset, without gap or repeat, after a client has gone", async () => {
    const process = await exec(["sh", "-c", "printf abcdef; read x; printf ghi; exit 7"]);
    const first = await attach(process);
    await first.next("output");
    first.socket.terminate();
    await first.closed;
    expect(await running()).toMatchObject({ running: true });
    const second = await attach(process, "offset=4");
    second.send(Buffer.from("\n"));
    expect(await second.next("exit")).toMatchObject({ exitCode: 7 });
    expect(second.output()).toBe("efghi");
  });

  it("hangs up the program with its client where that asked for it", async () => {
    const process = await exec(["sleep", "600"]);
    const caller = await attach(process, "hangsUp=true");
    await caller.next("attached");
    caller.socket.terminate();
    await expect.poll(running).toMatchObject({ running: false, exit: { signal: 1 } });
  });

  it("is told to be interrupted where the agent sleeps, with where to go on", async () => {
    const process = await exec(["sh", "-c", "printf abc; sleep 60"]);
    const attached = await attach(process);
    await attached.next("output");
    await client.send("POST", "/v1/agents/a1/sleep");
    expect(await attached.next("interrupted")).toEqual({
      type: "interrupted",
      reason: "sleep",
      offset: 3,
    });
    expect(await attached.closed).toBe(1000);
    const refused = await attach(process, "wakes=false");
    expect(await refused.next("error")).toMatchObject({ error: { code: "agent_state" } });
    expect((await client.send("GET", "/v1/agents/a1")).json()).toMatchObject({ state: "asleep" });
  });

  it("is told to be interrupted where the daemon ends, also while it waits for credit", async () => {
    endlessOutput();
    const waiting = await attach(1, "window=1024");
    await waiting.next("output");
    await fake.server.close();
    expect(await waiting.next("interrupted")).toEqual({
      type: "interrupted",
      reason: "daemon",
      offset: 1024,
    });
    expect(await waiting.closed).toBe(1000);
  });

  it("of an unknown process is an error that a browser sees, too", async () => {
    const attached = await attach(99);
    expect(await attached.next("error")).toMatchObject({ error: { code: "process_not_found" } });
    expect(await attached.closed).toBe(1011);
  });
});

describe("back-pressure", () => {
  it("C1A a client that gives no credit is sent its window, and gets more as it takes it", async () => {
    const counts = endlessOutput();
    const attached = await attach(1, "window=5000");
    const received = () => attached.output().length;
    await expect.poll(received).toBe(5000);
    expect(await still(received)).toBe(5000);
    expect(counts.produced).toBe(65_536);
    attached.send({ type: "credit", bytes: 100 });
    await expect.poll(received).toBe(5100);
    expect(await still(received)).toBe(5100);
    // Credit beyond the window is none.
    attached.send({ type: "credit", bytes: 1_000_000 });
    await expect.poll(received).toBe(10_100);
    expect(await still(received)).toBe(10_100);
    attached.socket.terminate();
    await expect.poll(() => counts.ended).toBe(true);
  });

  it("C1A a client that stops reading costs a bounded amount, harms nobody else, and is cut", async () => {
    await pingOften();
    const counts = endlessOutput();
    const stuck = await openRawAttachment(fake.socketPath, pathOf(1));
    stuck.pause();
    const asked = await still(() => counts.produced);
    expect(asked).toBeLessThan(32 * 65_536);
    const other = await client.send("GET", "/v1/health");
    expect(other.status).toBe(200);
    // It answers no ping.
    await expect.poll(() => counts.ended).toBe(true);
    stuck.destroy();
  });

  it("takes input no faster than the program, and gives it back as credit", async () => {
    const taken: number[] = [];
    const gate = Promise.withResolvers<undefined>();
    fake.commands.writeStdin = async (_target, bytes) => {
      await gate.promise;
      taken.push(bytes.length);
    };
    const attached = await attach(await exec(["sleep", "60"]));
    const piece = new Uint8Array(attachLimits.messageBytesMax);
    for (let sent = 0; sent < attachLimits.inputWindowBytes; sent += piece.length) {
      attached.send(piece);
    }
    await attached.next("attached");
    gate.resolve(undefined);
    const credited = () =>
      attached.messages.reduce((sum, each) => sum + (each.type === "credit" ? each.bytes : 0), 0);
    await expect.poll(credited).toBe(attachLimits.inputWindowBytes);
    expect(taken.reduce((sum, each) => sum + each, 0)).toBe(attachLimits.inputWindowBytes);
  });

  it("passes a signal that is sent behind input which nobody reads", async () => {
    fake.commands.writeStdin = () => new Promise(() => undefined);
    const attached = await attach(await exec(["sleep", "60"]));
    attached.send(new Uint8Array(60_000));
    attached.send({ type: "signal", id: 5, signal: 9 });
    expect(await attached.next("done")).toEqual({ type: "done", id: 5 });
    expect(await attached.next("exit")).toMatchObject({ signal: 9 });
  });
});

describe("input", () => {
  it("is written in order, and ended", async () => {
    const attached = await attach(await exec(["cat"]));
    const sent = randomBytes(200_000).toString("base64");
    for (let at = 0; at < sent.length; at += 1000) {
      attached.send(Buffer.from(sent.slice(at, at + 1000)));
      if (at % 50_000 === 0) await new Promise((resolve) => setTimeout(resolve, 20));
    }
    attached.send({ type: "end" });
    expect(await attached.next("exit")).toMatchObject({ exitCode: 0 });
    expect(attached.output()).toBe(sent);
  });

  it("that nobody takes any more is told, and its credit comes all the same", async () => {
    const attached = await attach(await exec(["sleep", "60"], {}));
    attached.send(Buffer.from("x"));
    expect(await attached.next("input-closed")).toMatchObject({ error: { code: "stdin_closed" } });
    expect(await attached.next("credit")).toEqual({ type: "credit", bytes: 1 });
  });
});

describe("a terminal", () => {
  const terminal = { rows: 30, columns: 100 };

  it("has a size, takes another, and tells the program", async () => {
    const script = `stty size; trap 'stty size; exit 4' WINCH; while :; do sleep 0.05; done`;
    const attached = await attach(await exec(["sh", "-c", script], { terminal }));
    await expect.poll(() => attached.output()).toBe("30 100\r\n");
    attached.send({ type: "resize", id: 1, rows: 50, columns: 132 });
    expect(await attached.next("done")).toEqual({ type: "done", id: 1 });
    expect(await attached.next("exit")).toMatchObject({ exitCode: 4 });
    expect(attached.output()).toBe("30 100\r\n50 132\r\n");
  });

  it("makes Ctrl-C of the byte, and an end of input of the end", async () => {
    const script = "echo ready; exec sleep 60";
    const interrupted = await attach(await exec(["sh", "-c", script], { terminal }));
    await interrupted.next("output");
    interrupted.send(Buffer.from([3]));
    expect(await interrupted.next("exit")).toMatchObject({ signal: 2 });
    const ended = await attach(await exec(["cat"], { terminal }));
    ended.send({ type: "end" });
    expect(await ended.next("exit")).toMatchObject({ exitCode: 0 });
  });

  it("that is none has no size, which is told to whoever asked", async () => {
    const process = await exec(["sleep", "60"]);
    const attached = await attach(process);
    attached.send({ type: "resize", id: 7, ...terminal });
    expect(await attached.next("refused")).toMatchObject({
      id: 7,
      error: { code: "not_supported" },
    });
    const path = `/v1/agents/a1/processes/${process}/resize`;
    expect((await client.post(path, terminal)).status).toBe(501);
  });

  it("is resized over plain HTTP, too", async () => {
    const script = `trap 'stty size; exit 0' WINCH; printf r; while :; do sleep 0.05; done`;
    const process = await exec(["sh", "-c", script], { terminal });
    const attached = await attach(process);
    await expect.poll(() => attached.output()).toBe("r");
    const path = `/v1/agents/a1/processes/${process}/resize`;
    expect((await client.post(path, { rows: 5, columns: 6 })).status).toBe(204);
    await attached.next("exit");
    expect(attached.output()).toBe("r5 6\r\n");
  });
});

describe("a client that does not keep to it", () => {
  it.each<[string, (AttachRequest | string | Uint8Array)[], string]>([
    ["text that is no JSON", ["{"], "bad_request"],
    ["JSON that is no message", ["[]"], "bad_request"],
    ["an unknown message", ['{"type":"exit"}'], "bad_request"],
    ["a field too many", ['{"type":"end","now":true}'], "bad_request"],
    ["a signal that is none", ['{"type":"signal","signal":99}'], "bad_request"],
    ["a long text", [`"${"x".repeat(attachLimits.textBytesMax)}"`], "bad_request"],
    [
      "more input than its window",
      Array(5).fill(new Uint8Array(60_000)) as Uint8Array[],
      "too_large",
    ],
    [
      "more requests than are done",
      Array(attachLimits.requestsMax + 1).fill({ type: "signal", signal: 18 }) as AttachRequest[],
      "too_many",
    ],
  ])("is told and closed on for %s", async (_title, sent, code) => {
    fake.commands.writeStdin = () => new Promise(() => undefined);
    const attached = await attach(await exec(["sleep", "60"]));
    await attached.next("attached");
    for (const message of sent) attached.send(message);
    expect(await attached.next("error")).toMatchObject({ error: { code } });
    expect(await attached.closed).toBe(1008);
    expect(await running()).toMatchObject({ running: true });
  });

  it("is closed on for a message that is larger than any may be", async () => {
    const attached = await attach(await exec(["cat"]));
    attached.send(new Uint8Array(attachLimits.messageBytesMax + 1));
    expect(await attached.closed).toBe(1009);
    expect(await running()).toMatchObject({ running: true });
  });

  it("is cut where it answers no ping, and another is not", async () => {
    await pingOften();
    const process = await exec(["sleep", "60"]);
    const silent = await openAttachment(fake.socketPath, pathOf(process), { autoPong: false });
    const good = await attach(process);
    let pings = 0;
    good.socket.on("ping", () => (pings += 1));
    expect(await silent.closed).toBe(1006);
    await expect.poll(() => pings).toBeGreaterThan(2);
    expect(good.socket.readyState).toBe(good.socket.OPEN);
  });

  it("does no harm with whatever bytes it sends", async () => {
    const process = await exec(["sleep", "60"]);
    for (let round = 0; round < 40; round++) {
      const socket = await openRawAttachment(fake.socketPath, pathOf(process));
      socket.write(randomBytes(1 + ((round * 977) % 5000)));
      socket.end();
      socket.resume();
      await new Promise((resolve) => socket.once("close", resolve));
    }
    expect((await client.send("GET", "/v1/health")).status).toBe(200);
    expect(await running()).toMatchObject({ running: true });
  });
});

describe("the upgrade", () => {
  it("is refused as any request is: by query, path and route", async () => {
    for (const [path, status] of [
      [pathOf(1, "window=1"), 400],
      [pathOf(1, "colour=red"), 400],
      ["/v1/agents/A_1/processes/1/attach", 400],
      ["/v1/nothing", 404],
    ] as const) {
      await expect(openAttachment(fake.socketPath, path)).rejects.toThrow(`${status}`);
    }
    expect(await client.refused("GET", pathOf(1))).toBe("bad_request");
  });

  it.each([
    ["no key", {}],
    ["a key of the wrong length", { "sec-websocket-key": "c2hvcnQ=" }],
    [
      "another version",
      { "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==", "sec-websocket-version": "7" },
    ],
  ])("with %s is refused like any other request, and its connection ended", async (_, more) => {
    const process = await exec(["sleep", "60"]);
    const headers = {
      connection: "upgrade",
      upgrade: "websocket",
      "sec-websocket-version": "13",
      ...more,
    };
    const {
      status,
      text,
      headers: answered,
    } = await client.send("GET", pathOf(process), { headers });
    expect([status, answered.connection]).toEqual([400, "close"]);
    expect(JSON.parse(text)).toMatchObject({
      code: "bad_request",
      message: expect.stringMatching(/^Cannot attach: /) as string,
    });
  });

  it("of another route is answered as if it were none", async () => {
    for (const upgrade of ["websocket", "h2c"]) {
      const headers = { connection: "upgrade", upgrade, "sec-websocket-version": "13" };
      const answer = await client.send("GET", "/v1/health", { headers });
      expect(answer.status).toBe(200);
    }
  });

  it("never says an API key again that was offered as a subprotocol", async () => {
    const process = await exec(["sleep", "60"]);
    const protocols = [keyProtocol("hunter2"), "perdure.attach.v1"];
    const { socket } = await openAttachment(fake.socketPath, pathOf(process), { protocols });
    expect(socket.protocol).toBe("perdure.attach.v1");
  });
});
