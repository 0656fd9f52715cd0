/** A link as a whole: beginning, end, and what happens in between to those who wait. */
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PerdureError } from "@perdure/protocol";
import { describe, expect, test } from "vitest";
import type { OutputPiece } from "../core/ports/guest-link.ts";
import { FieldWriter } from "./field.ts";
import { encodeFrame, frameType } from "./frame.ts";
import { FakeGuest } from "./fake/fake-guest.ts";
import { FakeGuestLinks } from "./fake/fake-links.ts";
import { longestTurnMs, reachableBytes, retainsLess, TURN_MS_GENEROUS } from "./fake/measure.ts";
import { RawGuest } from "./fake/raw-guest.ts";
import { createGuestLinks } from "./open.ts";
import { operation, status, tag } from "./operation.ts";
import { WINDOW_BYTES } from "./receiver.ts";
import { IDLE_INPUTS_MAX } from "./stdin.ts";
import { QUEUE_BYTES_MAX } from "./transport.ts";

const MIB = 1024 * 1024;
const log = new FieldWriter().number(tag.logStart, 0).number(tag.logEnd, 0);
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

async function failure(work: Promise<unknown>): Promise<PerdureError> {
  const outcome = await work.then(
    () => null,
    (error: unknown) => error,
  );
  if (!(outcome instanceof PerdureError)) throw new Error(`No typed error: ${String(outcome)}`);
  return outcome;
}

describe("sync", () => {
  test("finds its answer behind 60 MB of left-overs, without blocking the main loop", async () => {
    const guest = new RawGuest();
    guest.answersResync = false;
    const leftOver = Buffer.alloc(MIB);
    for (let i = 0; i < MIB; i++) leftOver[i] = (i * 31) & 255;
    for (let i = 0; i < 20; i++) guest.write(leftOver);
    const before = reachableBytes();
    const syncing = guest.link.sync(3, 30_000);
    const longest = await longestTurnMs(async () => {
      for (let i = 0; i < 40; i++) {
        guest.write(leftOver);
        await turn();
      }
      while (guest.greeting === undefined) await turn();
      guest.write(guest.synced());
      await syncing;
    });
    expect(longest).toBeLessThan(TURN_MS_GENEROUS);
    await retainsLess(before, 32 * MIB);
    expect(guest.greeting?.readBigUInt64LE(40)).toBe(3n);
  });

  test("is not fooled by SYNCED of another epoch, and hears what follows its own at once", async () => {
    const guest = new RawGuest();
    guest.answersResync = false;
    const syncing = guest.link.sync(1, 10_000);
    while (guest.greeting === undefined) await turn();
    guest.write(guest.synced((synced) => synced.fill(7, 16, 32)));
    const info = new FieldWriter().number(tag.generation, 1);
    const frame = encodeFrame(frameType.response, 9, new Uint8Array(2), info.finish());
    guest.write(Buffer.concat([guest.synced(), frame]));
    await syncing;
    expect(guest.link.droppedFrames).toBe(1);
  });

  test("asks again with a fresh nonce, and only the newest one's answer counts", async () => {
    const guest = new RawGuest();
    guest.answersResync = false;
    const state = { synced: false };
    const syncing = guest.link.sync(1, 30_000).then(() => {
      state.synced = true;
    });
    while (guest.greeting === undefined) await turn();
    const old = guest.synced();
    const first = guest.greeting;
    while (guest.greeting.equals(first)) await turn();
    expect(guest.greeting.subarray(16, 32).equals(first.subarray(16, 32))).toBe(false);
    guest.write(old);
    await turn();
    await turn();
    expect(state.synced).toBe(false);
    guest.write(guest.synced());
    await syncing;
    guest.link.close("test");
  });

  test("ends at its deadline, under a flood and in silence, and the link is still read", async () => {
    for (const floods of [true, false]) {
      const guest = new RawGuest();
      guest.answersResync = false;
      const syncing = failure(guest.link.sync(1, 200));
      const state = { done: false };
      void syncing.then(() => {
        state.done = true;
      });
      while (!state.done) {
        if (floods && guest.socket.writableLength < MIB) guest.write(Buffer.alloc(1000, 0x89));
        await turn();
      }
      expect((await syncing).code).toBe("guest_timeout");
      expect((await failure(guest.link.info(10))).code).toBe("guest_unreachable");
      expect(() => guest.link.letOut()).toThrow("not synchronised");
      guest.write(Buffer.alloc(4 * MIB));
      await turn();
      await turn();
      await turn();
      expect(guest.socket.writableLength).toBeLessThan(4 * MIB);
      guest.link.close("test");
    }
  });

  test("gives up on a guest that floods without end", async () => {
    const guest = new RawGuest();
    guest.answersResync = false;
    const syncing = failure(guest.link.sync(1, 60_000));
    const state = { done: false };
    void guest.link.closed.then(() => {
      state.done = true;
    });
    const flood = Buffer.alloc(MIB, 0x89);
    while (!state.done) {
      guest.write(flood);
      await turn();
    }
    expect((await syncing).code).toBe("guest_protocol_violation");
  });

  test("ends when the guest goes or the link is closed", async () => {
    const gone = new RawGuest();
    gone.answersResync = false;
    const first = failure(gone.link.sync(1, 60_000));
    gone.socket.destroy();
    expect((await first).code).toBe("guest_unreachable");
    const closed = new RawGuest();
    closed.answersResync = false;
    const second = failure(closed.link.sync(1, 60_000));
    closed.link.close("stop");
    expect(await second).toMatchObject({ code: "interrupted", details: { reason: "stop" } });
  });
});

describe("the end of a link", () => {
  test("by the guest: readers are interrupted after what came, calls find it unreachable", async () => {
    const guest = await RawGuest.open();
    const iterator = guest.link.attach(1, 0)[Symbol.asyncIterator]();
    const first = iterator.next();
    await guest.frame(frameType.window);
    guest.respond(1, 0, log);
    guest.output(1, 0, Buffer.from("abc"));
    guest.output(1, 3, Buffer.from("def"), 2);
    await first;
    const call = failure(guest.link.processes());
    await turn();
    guest.socket.end();
    expect(await guest.link.closed).toContain("closed");
    expect((await call).code).toBe("guest_unreachable");
    const second = (await iterator.next()).value as OutputPiece;
    expect(second).toMatchObject({ type: "output", stream: "stderr", offset: 3 });
    const error = await failure(iterator.next());
    expect(error).toMatchObject({ code: "interrupted", details: { offset: 6 } });
    expect((await failure(guest.link.info(10))).code).toBe("guest_unreachable");
  });

  test("by us: everybody is interrupted with the reason", async () => {
    const guest = await RawGuest.open();
    const options = { user: "user", mode: 0o600, size: 10 };
    const stuck = { [Symbol.asyncIterator]: () => ({ next: () => new Promise<never>(() => {}) }) };
    const waiting = [
      failure(guest.link.info(60_000)),
      failure(guest.link.writeFile("/f", options, stuck)),
      failure(guest.link.writeStdin(1, new Uint8Array(10), true)),
      failure(guest.link.readFile("/f", "user")),
      failure(guest.link.attach(1, 0)[Symbol.asyncIterator]().next()),
    ];
    await guest.frame(frameType.request, 4);
    guest.link.close("sleep");
    guest.link.close("again");
    for (const error of await Promise.all(waiting)) {
      expect(error).toMatchObject({ code: "interrupted", details: { reason: "sleep" } });
    }
    expect(await guest.link.closed).toBe("sleep");
    expect((await failure(guest.link.sync(1, 1))).code).toBe("interrupted");
  });
});

describe("credit", () => {
  test("is granted as pieces are taken, and never for what is not", async () => {
    const guest = await RawGuest.open();
    const iterator = guest.link.attach(1, 0)[Symbol.asyncIterator]();
    const first = iterator.next();
    const window = await guest.frame(frameType.window);
    expect(window.payload.readUInt32LE(0)).toBe(WINDOW_BYTES);
    guest.respond(1, 0, log);
    const piece = Buffer.alloc(16_368);
    const count = WINDOW_BYTES / 16_384;
    for (let i = 0; i < count; i++) guest.output(1, i * piece.length, piece);
    await first;
    await turn();
    expect(guest.frames.filter((frame) => frame.type === frameType.window).length).toBe(1);
    for (let i = 1; i < count; i++) await iterator.next();
    await turn();
    const windows = guest.frames.filter((frame) => frame.type === frameType.window);
    const granted = windows.reduce((sum, frame) => sum + frame.payload.readUInt32LE(0), 0);
    expect(granted).toBe(2 * WINDOW_BYTES);
    guest.link.close("test");
  });

  test("is what a file waits for, and no frame is larger than allowed", async () => {
    const guest = await RawGuest.open();
    const options = { user: "user", mode: 0o600, size: 200_000 };
    const writing = guest.link.writeFile("/f", options, once(Buffer.alloc(200_000)));
    await guest.frame(frameType.request);
    await turn();
    const data = (): number =>
      guest.frames
        .filter((frame) => frame.type === frameType.data)
        .reduce((sum, frame) => sum + frame.payload.length, 0);
    expect(data()).toBe(0);
    guest.window(1, 100);
    while (data() < 100) await turn();
    await turn();
    expect(data()).toBe(100);
    guest.window(1, 199_900);
    await guest.frame(frameType.end);
    expect(data()).toBe(200_000);
    guest.respond(1);
    await writing;
    guest.link.close("test");
  });

  test("a guest that grants and does not read holds back the sender, not the memory", async () => {
    const guest = await RawGuest.open();
    guest.socket.pause();
    const options = { user: "user", mode: 0o600, size: 64 * MIB };
    const writes = Array.from({ length: 40 }, () =>
      failure(guest.link.writeFile("/f", options, endless())),
    );
    for (let i = 1; i <= 40; i++) guest.window(i, MIB);
    for (let i = 0; i < 50; i++) await turn();
    expect(reachableBytes()).toBeGreaterThan(0);
    const calls = Array.from({ length: 4000 }, () =>
      failure(guest.link.setGeneration(1, "x".repeat(60_000))),
    );
    const codes = new Set((await Promise.all(calls.slice(300))).map((error) => error.code));
    expect([...codes].every((code) => ["guest_timeout", "too_many"].includes(code))).toBe(true);
    expect(guest.socket.readableLength).toBeLessThan(QUEUE_BYTES_MAX);
    guest.link.close("test");
    await Promise.all([...writes, ...calls]);
  });
});

describe("files", () => {
  test("a refusal reaches a writer whose source is stuck, and the source is let go", async () => {
    const guest = await RawGuest.open();
    let left = false;
    const stuck = {
      [Symbol.asyncIterator]: () => ({
        next: () => new Promise<never>(() => {}),
        return: () => {
          left = true;
          return Promise.resolve({ done: true as const, value: undefined });
        },
      }),
    };
    const writing = failure(
      guest.link.writeFile("/f", { user: "user", mode: 0o600, size: 10 }, stuck),
    );
    await guest.frame(frameType.request);
    guest.respond(1, status.diskFull, new FieldWriter().string(tag.message, "No\nroom\x1b[31m"));
    const error = await writing;
    expect(error.code).toBe("disk_full");
    expect(error.message).toBe('Cannot write "/f": No room [31m');
    expect(left).toBe(true);
    guest.link.close("test");
  });

  test("too few bytes or a broken source are cancelled, never ended", async () => {
    for (const source of [once(Buffer.alloc(9)), broken()]) {
      const guest = await RawGuest.open();
      const options = { user: "user", mode: 0o600, size: 10 };
      const writing = guest.link.writeFile("/f", options, source).catch((error: unknown) => error);
      await guest.frame(frameType.request);
      guest.window(1, 100);
      await guest.frame(frameType.cancel);
      expect(String(await writing)).toMatch(/only 9 came|The source broke/);
      expect(guest.frames.some((frame) => frame.type === frameType.end)).toBe(false);
      guest.link.close("test");
    }
  });

  test("an answer of ok before the end of the bytes is not believed", async () => {
    const guest = await RawGuest.open();
    const options = { user: "user", mode: 0o600, size: 10 };
    const writing = failure(guest.link.writeFile("/f", options, endless()));
    await guest.frame(frameType.request);
    guest.respond(1);
    expect((await writing).code).toBe("guest_protocol_violation");
  });

  test("an error in the middle of reading follows what was read", async () => {
    const guest = await RawGuest.open();
    const reading = guest.link.readFile("/f", "user");
    await guest.frame(frameType.request);
    guest.respond(1, 0, facts());
    const { bytes } = await reading;
    const iterator = bytes[Symbol.asyncIterator]();
    const first = iterator.next();
    await guest.frame(frameType.window);
    guest.send(frameType.data, 1, Buffer.from("abc"));
    guest.end(1, status.internal, new FieldWriter().string(tag.message, "The disk failed"));
    expect(Buffer.from((await first).value as Uint8Array).toString()).toBe("abc");
    expect((await failure(iterator.next())).code).toBe("guest_error");
    guest.link.close("test");
  });
});

test("inputs that nobody writes to are given back to the guest, the oldest first", async () => {
  const guest = await RawGuest.open();
  for (let process = 1; process <= IDLE_INPUTS_MAX + 3; process++) {
    const before = guest.frames.length;
    const writing = guest.link.writeStdin(process, new Uint8Array(5), false);
    await guest.frame(frameType.request, before);
    guest.respond(process);
    guest.window(process, 100);
    await writing;
  }
  await turn();
  const cancelled = guest.frames.filter((frame) => frame.type === frameType.cancel);
  expect(cancelled.map((frame) => frame.stream)).toEqual([1, 2, 3]);
  guest.link.close("test");
});

describe("text that a program inside has made", () => {
  const odd = Uint8Array.of(0x61, 0xff, 0x62);

  test("may be the name of a thread, without harm to the link", async () => {
    const guest = await RawGuest.open();
    const asked = guest.link.timers();
    const { stream } = await guest.frame(frameType.request);
    const timer = new FieldWriter().number(tag.pid, 7).number(tag.dueInMs, 5).bytes(tag.name, odd);
    guest.respond(stream, 0, new FieldWriter().nested(tag.timer, timer));
    expect(await asked).toEqual([{ pid: 7, name: "a\u{fffd}b", dueInMs: 5 }]);
    guest.link.close("test");
  });

  test("may stand in the message of an error, without harm to the link", async () => {
    const guest = await RawGuest.open();
    const asked = guest.link.stat("/tmp/l", "user");
    const { stream } = await guest.frame(frameType.request);
    guest.respond(stream, status.pathIsLink, new FieldWriter().bytes(tag.message, odd));
    const error = await failure(asked);
    expect(error.code).toBe("path_is_link");
    expect(error.message).toContain("a\u{fffd}b");
    guest.link.close("test");
  });
});

describe("an older guest agent", () => {
  test("tells all statistics where those of memory are asked for, without the newer ones", async () => {
    const guest = await RawGuest.open();
    const asked = guest.link.stats("memory");
    const { stream } = await guest.frame(frameType.request);
    const answer = new FieldWriter();
    for (const name of ["memTotalBytes", "memAvailableBytes", "anonBytes", "shmemBytes"]) {
      answer.nested(tag.stat, new FieldWriter().string(tag.name, name).number(tag.value, 5));
    }
    for (const name of ["cachedBytes", "cpuUsec"]) {
      answer.nested(tag.stat, new FieldWriter().string(tag.name, name).number(tag.value, 6));
    }
    guest.respond(stream, 0, answer);
    expect(await asked).toEqual({
      memTotalBytes: 5,
      memAvailableBytes: 5,
      anonBytes: 5,
      shmemBytes: 5,
      cachedBytes: 6,
      buffersBytes: null,
      slabBytes: null,
      slabReclaimableBytes: null,
    });
    guest.link.close("test");
  });

  test("that does not know an operation says not_supported, and the link goes on", async () => {
    const guest = await RawGuest.open();
    const asked = failure(guest.link.dropCaches(1000));
    const { stream } = await guest.frame(frameType.request);
    guest.respond(stream, status.unknownOperation);
    expect((await asked).code).toBe("not_supported");
    guest.link.close("test");
  });
});

test("a command that is too long for a request says what fits", async () => {
  const guest = await RawGuest.open();
  const argv = ["/bin/echo", "x".repeat(131_072)];
  const error = await failure(guest.link.exec({ argv, env: {}, user: "user", stdin: false }));
  expect(error.code).toBe("too_large");
  expect(error.message).toContain("at most 65536 fit");
  expect(error.details["requestBytesMax"]).toBe(65_536);
  guest.link.close("test");
});

describe("deadlines of the guest", () => {
  test("keep the name of what was asked for", async () => {
    const guest = new FakeGuest();
    guest.faults.failing = new Map([
      [operation.flush, status.deadlineExceeded],
      [operation.freeze, status.deadlineExceeded],
      [operation.dropCaches, status.deadlineExceeded],
    ]);
    const links = new FakeGuestLinks();
    links.put("guest", guest);
    const link = await links.connect("guest");
    await link.sync(1, 10_000);
    expect((await failure(link.flush(10))).code).toBe("flush_timeout");
    expect((await failure(link.freeze(10))).code).toBe("freeze_timeout");
    expect((await failure(link.dropCaches(10))).code).toBe("deadline_exceeded");
    guest.faults.silent = [operation.info];
    expect((await failure(link.info(20))).code).toBe("guest_timeout");
    link.close("test");
  });
});

describe("a fake guest", () => {
  test("goes on from what was saved, with its programs, files and clock", async () => {
    const links = new FakeGuestLinks();
    const first = new FakeGuest();
    links.put("guest", first);
    const before = await links.connect("guest");
    await before.sync(1, 10_000);
    before.letOut();
    const options = { user: "user", mode: 0o600, size: 2 };
    await before.writeFile("/home/user/f", options, once(Buffer.from("hi")));
    const argv = ["/bin/sh", "-c", "echo one; sleep 0.2; echo two"];
    const { process } = await before.exec({ argv, env: {}, user: "user", stdin: false });
    for await (const piece of before.attach(process, 0)) if (piece.type === "output") break;
    await before.freeze(1000);
    first.pause();
    const saved = first.save();
    before.close("sleep");
    first.kill();

    links.put("guest", FakeGuest.load(saved));
    const after = await links.connect("guest");
    await after.sync(2, 10_000);
    await after.setClock(10_000);
    await after.thaw();
    after.letOut();
    const seen: OutputPiece[] = [];
    for await (const piece of after.attach(process, 4)) seen.push(piece);
    expect(seen.map((piece) => (piece.type === "output" ? piece.offset : piece.type))).toEqual([
      4,
      "exit",
    ]);
    expect((await after.stat("/home/user/f", "user")).size).toBe(2);
    after.close("test");
  });
});

describe("over a unix socket", () => {
  test("a link is connected, synchronised and used", async () => {
    const folder = await mkdtemp(join(tmpdir(), "perdure-link-"));
    const path = join(folder, "link.sock");
    const guest = new FakeGuest();
    const server = createServer((socket) => guest.serve(socket));
    await new Promise<void>((resolve) => server.listen(path, resolve));
    const link = await createGuestLinks().connect(path);
    await link.sync(5, 10_000);
    await link.setGeneration(5, "{}");
    expect((await link.info(10_000)).generation).toBe(5);
    guest.kill();
    expect(await link.closed).toContain("closed");
    server.close();
    await rm(folder, { recursive: true });
  });

  test("nobody there is unreachable", async () => {
    const path = join(tmpdir(), "perdure-nobody-is-there.sock");
    expect((await failure(createGuestLinks().connect(path))).code).toBe("guest_unreachable");
  });
});

async function* once(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  await Promise.resolve();
  yield bytes;
}

async function* broken(): AsyncGenerator<Uint8Array> {
  yield* once(Buffer.alloc(3));
  throw new Error("The source broke");
}

async function* endless(): AsyncGenerator<Uint8Array> {
  for (;;) {
    await turn();
    yield new Uint8Array(4);
  }
}

function facts(): FieldWriter {
  return new FieldWriter()
    .string(tag.kind, "file")
    .number(tag.size, 3)
    .number(tag.mode, 0o644)
    .number(tag.uid, 0)
    .number(tag.gid, 0)
    .number(tag.mtimeNs, 0);
}

test("a guest that does not open the way out is given up at the deadline, which is the gate's", async () => {
  const guest = new RawGuest();
  await guest.link.sync(1, 10_000);
  const error = await failure(guest.link.openWayOut(50));
  expect([error.code, error.message]).toEqual(["guest_timeout", expect.stringContaining("50 ms")]);
  guest.link.close("test");
});
