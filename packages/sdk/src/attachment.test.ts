/** Attachments through the client, against the real server. */
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { attachLimits } from "@perdure/protocol";
import { openFakeServer } from "../../../test/contract/api/fake-server.ts";
import type { FakeServer } from "../../../test/contract/api/fake-server.ts";
import { openTcpDoor } from "../../../test/browser/tcp-door.ts";
import type { Attachment } from "./attachment.ts";
import type { Output } from "./output.ts";
import { Perdure } from "./perdure.ts";

let folder: string;
let fake: FakeServer;
let perdure: Perdure;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "perdure-sdk-attach-"));
  fake = await openFakeServer(join(folder, "run", "perdure.sock"), folder);
  perdure = new Perdure({ socketPath: fake.socketPath });
  await perdure.create({ name: "a1" });
});
afterEach(async () => {
  await perdure.close();
  await fake.close();
  await rm(folder, { recursive: true });
});

const text = (event: Output): string =>
  event.type === "output" ? Buffer.from(event.bytes).toString() : `<${event.type}>`;

async function all(attachment: Attachment): Promise<string> {
  let whole = "";
  for await (const event of attachment) whole += text(event);
  return whole;
}
/** Reads until `wanted` has come; goes on to own the loop. */
async function until(events: AsyncIterator<Output>, wanted: string): Promise<string> {
  let seen = "";
  while (!seen.includes(wanted)) {
    const next = await events.next();
    if (next.done === true) throw new Error(`Ended without ${wanted}: ${seen}`);
    seen += text(next.value);
  }
  return seen;
}
const running = async () => (await perdure.processes("a1")).map(({ running }) => running);

describe("a terminal", () => {
  it("is typed on, resized, signalled and ended", async () => {
    const script = `trap 'stty size' WINCH; echo ready; cat; exit 5`;
    const terminal = await perdure.terminal("a1", ["sh", "-c", script], { rows: 30, columns: 90 });
    const events = terminal[Symbol.asyncIterator]();
    await until(events, "ready");
    await terminal.write("hello\n");
    // What is typed is shown, and cat repeats it.
    expect(await until(events, "hello\r\nhello\r\n")).toContain("hello");
    await terminal.resize({ rows: 10, columns: 20 });
    await terminal.end();
    const rest = await until(events, "<exit>");
    expect(rest).toContain("10 20");
    expect(fake.commands.executed.find(({ kind }) => kind === "exec")).toMatchObject({
      terminal: { rows: 30, columns: 90 },
      env: { TERM: "xterm-256color" },
    });
  });

  it("C43 that is closed goes on, and is attached to again from where it was read", async () => {
    const script = `printf abc; read x; printf def`;
    const first = await perdure.terminal("a1", ["sh", "-c", script]);
    for await (const event of first) if (text(event) === "abc") break;
    expect([first.offset, await running()]).toEqual([3, [true]]);
    await expect(first.write("lost")).rejects.toMatchObject({ code: "interrupted" });
    const again = await perdure.attach("a1", first.process, { offset: first.offset });
    await again.write("\n");
    expect(await all(again)).toBe("\r\ndef<exit>");
  });
});

describe("back-pressure", () => {
  it("C1A a reader that does not read has the program wait, and gets all of it later", async () => {
    let produced = 0;
    const size = 4 << 20;
    fake.commands.output = () =>
      Promise.resolve(
        (async function* () {
          const bytes = new Uint8Array(65_536);
          for (; produced < size; produced += bytes.length) {
            await Promise.resolve();
            yield { type: "output", stream: "stdout", offset: produced, bytes } as const;
          }
          yield { type: "exit", exitCode: 0, signal: null, timedOut: false } as const;
        })(),
      );
    const attached = await perdure.attach("a1", 1);
    let before = -1;
    await expect
      .poll(() => produced === before || ((before = produced), false), { interval: 150 })
      .toBe(true);
    expect(produced).toBeLessThanOrEqual(262_144 + 65_536);
    let read = 0;
    for await (const event of attached) {
      if (event.type !== "output") break;
      expect(event.offset).toBe(read);
      read += event.bytes.length;
    }
    expect(read).toBe(size);
  });

  it("a program that does not read makes the writer wait, and a signal passes all the same", async () => {
    let taken = 0;
    const gate = Promise.withResolvers<undefined>();
    fake.commands.writeStdin = async (_target, bytes) => {
      await gate.promise;
      taken += bytes.length;
    };
    const process = await perdure.exec("a1", ["sleep", "60"], { stdin: true });
    const attached = await process.attach();
    const size = attachLimits.inputWindowBytes + 100_000;
    let written = false;
    const writing = attached.write(new Uint8Array(size)).then(() => (written = true));
    await attached.signal("SIGCONT");
    expect(written).toBe(false);
    gate.resolve(undefined);
    await writing;
    await expect.poll(() => taken).toBe(size);
    await attached.signal("SIGKILL");
    expect(await all(attached)).toBe("<exit>");
  });
});

describe("an end", () => {
  it("by a sleep is the last event, and the agent is not woken where it was not to be", async () => {
    const process = await perdure.exec("a1", ["sh", "-c", "printf abc; sleep 60"]);
    const attached = await process.attach();
    const reading = all(attached);
    await expect.poll(() => attached.offset).toBe(3);
    await perdure.sleep("a1");
    expect(await reading).toBe("abc<interrupted>");
    await expect(attached.signal("SIGTERM")).rejects.toMatchObject({ code: "interrupted" });
    const refused = all(await process.attach({ offset: 3, wakes: false }));
    await expect(refused).rejects.toMatchObject({ code: "agent_state" });
    expect((await perdure.show("a1")).state).toBe("asleep");
  });

  it("of the connection is an error that says where to go on", async () => {
    const door = await openTcpDoor(fake.socketPath);
    await using other = new Perdure({ url: door.url });
    const process = await other.exec("a1", ["sh", "-c", "printf abc; sleep 60"]);
    const attached = await process.attach();
    const events = attached[Symbol.asyncIterator]();
    await until(events, "abc");
    door.close();
    await expect(events.next()).rejects.toMatchObject({
      code: "interrupted",
      details: { offset: 3 },
    });
  });

  it("of the client ends the loop", async () => {
    const attached = await perdure.terminal("a1", ["sleep", "60"]);
    const reading = all(attached);
    await perdure.close();
    await expect(reading).rejects.toMatchObject({ code: "interrupted" });
    await expect(perdure.attach("a1", 1)).rejects.toMatchObject({ code: "cancelled" });
  });
});

describe("a refusal", () => {
  it("of input is told to the writer", async () => {
    const process = await perdure.exec("a1", ["sleep", "60"]);
    const attached = await process.attach();
    await attached.write("x");
    const writing = async (): Promise<unknown> => {
      try {
        await attached.write("x");
        return "";
      } catch (error) {
        return (error as { code: unknown }).code;
      }
    };
    await expect.poll(writing).toBe("stdin_closed");
    await expect(attached.end()).rejects.toMatchObject({ code: "stdin_closed" });
  });

  it("of a size is told to whoever asked", async () => {
    const process = await perdure.exec("a1", ["sleep", "60"]);
    const size = { rows: 1, columns: 1 };
    const attached = await process.attach();
    await expect(attached.resize(size)).rejects.toMatchObject({ code: "not_supported" });
    await expect(process.resize(size)).rejects.toMatchObject({ code: "not_supported" });
  });

  it("of the connection says why", async () => {
    const unknown = all(await perdure.attach("a1", 99));
    await expect(unknown).rejects.toMatchObject({ code: "process_not_found" });
    await expect(perdure.attach("A_1", 1)).rejects.toMatchObject({ code: "bad_request" });
    const signal = AbortSignal.abort();
    await expect(perdure.process("a1", 1).attach({ signal })).rejects.toMatchObject({
      code: "cancelled",
    });
    await using nobody = new Perdure({ socketPath: join(folder, "none.sock") });
    await expect(nobody.attach("a1", 1)).rejects.toMatchObject({ code: "daemon_unreachable" });
    // What lets no WebSocket pass, and answers the rest.
    const proxy = createServer((_request, response) => response.end("{}"));
    await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
    const url = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
    await using behind = new Perdure({ url });
    await expect(behind.attach("a1", 1)).rejects.toMatchObject({
      code: "interrupted",
      hint: expect.stringContaining("writeStdin") as string,
    });
    proxy.closeAllConnections();
    proxy.close();
  });
});
