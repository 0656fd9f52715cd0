/** The rules of an epoch, against a guest that breaks each of them. */
import { PerdureError, type ErrorCode } from "@perdure/protocol";
import { describe, expect, test } from "vitest";
import { FieldWriter } from "./field.ts";
import { encodeFrame, frameType, u16, type FrameType } from "./frame.ts";
import { RawGuest } from "./fake/raw-guest.ts";
import { longestTurnMs, reachableBytes, retainsLess, TURN_MS_GENEROUS } from "./fake/measure.ts";
import { EVENTS_MAX } from "./epoch.ts";
import { tag } from "./operation.ts";
import { WINDOW_BYTES } from "./receiver.ts";

const MIB = 1024 * 1024;
const log = new FieldWriter().number(tag.logStart, 0).number(tag.logEnd, 0);
const started = new FieldWriter().number(tag.process, 1).number(tag.pid, 9);
const bytes = (count: number): Uint8Array => new Uint8Array(count);
const exec = { argv: ["a"], env: {}, user: "user", stdin: false };

async function code(work: Promise<unknown>): Promise<ErrorCode | "none"> {
  try {
    await work;
    return "none";
  } catch (error) {
    if (error instanceof PerdureError) return error.code;
    throw error;
  }
}

/** Opens an attach and takes pieces until it ends. */
function attach(guest: RawGuest): Promise<number> {
  return (async () => {
    let pieces = 0;
    for await (const piece of guest.link.attach(1, 0)) if (piece.type !== "exit") pieces++;
    return pieces;
  })();
}

describe("a guest that breaks the protocol", () => {
  const cases: [string, (guest: RawGuest) => void][] = [
    ["frames for a stream never opened", (guest) => guest.respond(77)],
    ["a RESPONSE on stream 0", (guest) => guest.respond(0)],
    ["a REQUEST", (guest) => guest.send(frameType.request, 1, u16(1))],
    ["a CANCEL", (guest) => guest.send(frameType.cancel, 1)],
    ["an EVENT on another stream", (guest) => guest.send(frameType.event, 1, u16(1))],
    ["an EVENT without its kind", (guest) => guest.send(frameType.event, 0)],
    ["an EVENT without its process", (guest) => guest.send(frameType.event, 0, u16(1))],
    ["a RESPONSE without its status", (guest) => guest.send(frameType.response, 1)],
    ["a RESPONSE with half a field", (guest) => guest.send(frameType.response, 1, bytes(5))],
    ["a RESPONSE without what was asked", (guest) => guest.respond(1)],
    [
      "a RESPONSE whose number is too short",
      (guest) => guest.respond(1, 0, new FieldWriter().bytes(tag.process, bytes(4))),
    ],
    [
      "a RESPONSE with two messages",
      (guest) => {
        const twice = new FieldWriter().string(tag.message, "a").string(tag.message, "b");
        guest.respond(1, 5, twice);
      },
    ],
    ["DATA for an operation without any", (guest) => guest.send(frameType.data, 1, bytes(1))],
    ["END for an operation without one", (guest) => guest.end(1)],
    ["WINDOW for an operation without data", (guest) => guest.window(1, 100)],
    ["a giant length", (guest) => guest.write(Buffer.alloc(64, 0xff))],
    ["a frame that is cut short, then garbage", (guest) => guest.write(Buffer.alloc(64, 1))],
  ];

  test.each(cases)("by %s loses its link, and pending calls say so", async (_name, attack) => {
    const guest = await RawGuest.open();
    const pending = code(guest.link.exec(exec));
    const other = code(guest.link.info(60_000));
    await guest.frame(frameType.request);
    attack(guest);
    expect(await pending).toBe("guest_protocol_violation");
    expect(await other).toBe("guest_protocol_violation");
    expect(await guest.link.closed).toContain("guest_protocol_violation");
    expect(await code(guest.link.info(1))).toBe("guest_protocol_violation");
  });

  test("by a second RESPONSE loses its link", async () => {
    const guest = await RawGuest.open();
    const first = guest.link.exec(exec);
    await guest.frame(frameType.request);
    guest.respond(1, 0, started);
    expect(await first).toEqual({ process: 1, pid: 9 });
    guest.respond(1, 0, started);
    expect(await guest.link.closed).toContain("guest_protocol_violation");
  });

  const output: [string, (guest: RawGuest) => void][] = [
    ["DATA before RESPONSE", (guest) => guest.output(1, 0, bytes(1))],
    ["END before RESPONSE", (guest) => guest.end(1)],
    ["two RESPONSEs", (guest) => [log, log].forEach((fields) => guest.respond(1, 0, fields))],
    [
      "a log that ends before it starts",
      (guest) =>
        guest.respond(1, 0, new FieldWriter().number(tag.logStart, 2).number(tag.logEnd, 1)),
    ],
  ];
  const pieces: [string, (guest: RawGuest) => void][] = [
    ["an offset after the expected one", (guest) => guest.output(1, 5, bytes(1))],
    ["a repeated offset", (guest) => [4, 4].forEach((count) => guest.output(1, 0, bytes(count)))],
    ["an offset of 2^63", (guest) => guest.send(frameType.data, 1, Buffer.alloc(17, 0x80))],
    ["no bytes", (guest) => guest.output(1, 0, bytes(0))],
    ["an empty payload", (guest) => guest.send(frameType.data, 1)],
    ["another channel", (guest) => guest.output(1, 0, bytes(1), 3)],
    ["a cut of another length", (guest) => guest.output(1, 0, bytes(15), 0)],
    ["a cut of nothing", (guest) => guest.output(1, 0, bytes(16), 0)],
    [
      "more than the credit",
      (guest) => {
        for (let at = 0; at < WINDOW_BYTES + 65_520; at += 65_520)
          guest.output(1, at, bytes(65_520));
      },
    ],
    ["an END without how it ended", (guest) => guest.end(1)],
    [
      "an END with both ways to end",
      (guest) => guest.end(1, 0, new FieldWriter().number(tag.exitCode, 0).number(tag.signal, 9)),
    ],
    [
      "an exit code out of range",
      (guest) => guest.end(1, 0, new FieldWriter().number(tag.exitCode, 256)),
    ],
    ["a signal out of range", (guest) => guest.end(1, 0, new FieldWriter().number(tag.signal, 65))],
    [
      "DATA after END",
      (guest) => {
        guest.end(1, 0, new FieldWriter().number(tag.exitCode, 0));
        guest.output(1, 0, bytes(1));
      },
    ],
    ["WINDOW", (guest) => guest.window(1, 1)],
  ];

  test.each(output)("in output by %s loses its link", async (_name, attack) => {
    const guest = await RawGuest.open();
    const reading = code(attach(guest));
    await guest.frame(frameType.window);
    attack(guest);
    expect(await reading).toBe("interrupted");
    expect(await guest.link.closed).toContain("guest_protocol_violation");
  });

  test.each(pieces)("in pieces of output by %s loses its link", async (_name, attack) => {
    const guest = await RawGuest.open();
    const iterator = guest.link.attach(1, 0)[Symbol.asyncIterator]();
    const pending = code(iterator.next());
    await guest.frame(frameType.window);
    guest.respond(1, 0, log);
    attack(guest);
    expect(await guest.link.closed).toContain("guest_protocol_violation");
    expect(["interrupted", "none"]).toContain(await pending);
  });

  test("by WINDOW of nothing or too far ahead loses its link", async () => {
    for (const steps of [[0], [MIB + 1], [MIB, 1], [0xffffffff]]) {
      const guest = await RawGuest.open();
      const options = { user: "user", mode: 0o600, size: 4 * MIB };
      const writing = code(guest.link.writeFile("/f", options, silent()));
      await guest.frame(frameType.request);
      for (const step of steps) guest.window(1, step);
      expect(await guest.link.closed).toContain("guest_protocol_violation");
      expect(await writing).toBe("guest_protocol_violation");
    }
  });

  test("by more events than there were processes loses its link", async () => {
    const guest = await RawGuest.open();
    const ended = new FieldWriter().number(tag.process, 1).finish();
    for (let i = 0; i < EVENTS_MAX; i++) guest.send(frameType.event, 0, u16(1), ended);
    const info = guest.link.info(10_000);
    await guest.frame(frameType.request);
    guest.send(frameType.event, 0, u16(1), ended);
    expect(await code(info)).toBe("guest_protocol_violation");
  });

  test("by a frame for a stream never opened loses its link, whatever may be under way", async () => {
    const guest = await RawGuest.open();
    const pending = code(guest.link.info(20));
    expect(await pending).toBe("guest_timeout");
    guest.respond(2, 0, infoFields());
    expect(await guest.link.closed).toContain("never opened");
  });

  test("by DATA of nothing in a file loses its link", async () => {
    const guest = await RawGuest.open();
    const reading = guest.link.readFile("/f", "user");
    await guest.frame(frameType.request);
    const facts = new FieldWriter().string(tag.kind, "file").number(tag.size, 1);
    for (const each of [tag.mode, tag.uid, tag.gid, tag.mtimeNs]) facts.number(each, 0);
    guest.respond(1, 0, facts);
    const next = code((await reading).bytes[Symbol.asyncIterator]().next());
    await guest.frame(frameType.window);
    guest.send(frameType.data, 1);
    expect(await next).toBe("guest_protocol_violation");
  });

  test("by endless frames for a stream that was cancelled loses its link", async () => {
    const guest = await RawGuest.open();
    const iterator = guest.link.attach(1, 0)[Symbol.asyncIterator]();
    const pending = iterator.next();
    await guest.frame(frameType.window);
    guest.respond(1, 0, log);
    await iterator.return?.();
    expect((await pending).done).toBe(true);
    await guest.frame(frameType.cancel);
    // What was under way is taken.
    for (let at = 0; at < WINDOW_BYTES; at += 65_536) guest.output(1, at, bytes(65_520));
    guest.end(1);
    const info = guest.link.info(10_000);
    await guest.frame(frameType.request, 3);
    guest.respond(2, 0, infoFields());
    expect((await info).version).toBe("1");
    guest.output(1, 0, bytes(10));
    for (let i = 0; i < 40; i++) guest.output(1, 0, bytes(65_520));
    expect(await guest.link.closed).toContain("guest_protocol_violation");
  });
});

describe("before the agent is let out", () => {
  test("everything but answers to control requests is dropped and counted", async () => {
    const guest = new RawGuest();
    await guest.link.sync(1, 10_000);
    const info = guest.link.info(10_000);
    await guest.frame(frameType.request);
    const strange: [FrameType, number][] = [
      [frameType.request, 1],
      [frameType.data, 1],
      [frameType.end, 1],
      [frameType.window, 1],
      [frameType.cancel, 1],
      [frameType.event, 0],
      [frameType.response, 2],
      [frameType.response, 0],
    ];
    for (const [type, stream] of strange) guest.send(type, stream, bytes(30));
    guest.respond(1, 0, infoFields());
    await info;
    guest.respond(1, 0, infoFields());
    const second = guest.link.info(10_000);
    guest.respond(2, 0, infoFields());
    await second;
    expect(guest.link.droppedFrames).toBe(strange.length + 1);
  });

  test("a flood of the smallest frames neither blocks the main loop nor hides the answer", async () => {
    const guest = new RawGuest();
    await guest.link.sync(1, 10_000);
    const chunk = Buffer.concat(Array.from({ length: 5461 }, () => encodeFrame(frameType.end, 9)));
    const before = reachableBytes();
    const longest = await longestTurnMs(async () => {
      for (let i = 0; i < 400; i++) {
        guest.write(chunk);
        if (i % 8 === 7) await new Promise((resolve) => setImmediate(resolve));
      }
      const info = guest.link.info(30_000);
      await guest.frame(frameType.request);
      guest.respond(1, 0, infoFields());
      await info;
    });
    expect(guest.link.droppedFrames).toBe(400 * 5461);
    expect(longest).toBeLessThan(TURN_MS_GENEROUS);
    await retainsLess(before, 32 * MIB);
  });

  test("a flood without end loses its link", async () => {
    const guest = new RawGuest();
    await guest.link.sync(1, 10_000);
    const frame = encodeFrame(frameType.data, 1, bytes(65_536));
    for (let i = 0; i < 2100; i++) {
      guest.write(frame);
      if (i % 16 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    expect(await guest.link.closed).toContain("guest_protocol_violation");
  });
});

test("a call that was not answered in time is cancelled, and its late answer is nobody's", async () => {
  const guest = await RawGuest.open();
  expect(await code(guest.link.info(30))).toBe("guest_timeout");
  await guest.frame(frameType.cancel);
  guest.respond(1, 0, infoFields());
  const second = guest.link.info(10_000);
  await guest.frame(frameType.request, 2);
  guest.respond(2, 0, infoFields());
  expect((await second).version).toBe("1");
});

test("calls beyond the limit are refused here, and control operations still pass", async () => {
  const guest = await RawGuest.open();
  const users = Array.from({ length: 300 }, () => code(guest.link.exec(exec)));
  const info = guest.link.info(10_000);
  await guest.frame(frameType.request, 224);
  guest.respond(225, 0, infoFields());
  expect((await info).version).toBe("1");
  guest.link.close("test");
  const codes = await Promise.all(users);
  expect(codes.filter((each) => each === "too_many").length).toBe(300 - 224);
  expect(codes.filter((each) => each === "interrupted").length).toBe(224);
});

test("a million pieces of one byte to a reader that does not read take little memory", async () => {
  const guest = await RawGuest.open();
  const before = reachableBytes();
  const iterators = Array.from({ length: 16 }, (_, i) =>
    guest.link.attach(i + 1, 0)[Symbol.asyncIterator](),
  );
  for (const [i, iterator] of iterators.entries()) {
    void iterator.next().catch(() => undefined);
    await guest.frame(frameType.window, 2 * i);
    guest.respond(i + 1, 0, log);
    const pieces = Math.floor(WINDOW_BYTES / 17);
    for (let at = 0; at < pieces; at++) guest.output(i + 1, at, bytes(1), 1 + (at % 2));
    await new Promise((resolve) => setImmediate(resolve));
  }
  await retainsLess(before, 16 * 2 * WINDOW_BYTES);
  guest.link.close("test");
});

function infoFields(): FieldWriter {
  return new FieldWriter()
    .string(tag.version, "1")
    .string(tag.bootId, "b")
    .number(tag.generation, 1)
    .flag(tag.frozen, false);
}

/** A source whose first piece never comes. */
function silent(): AsyncIterable<Uint8Array> {
  return { [Symbol.asyncIterator]: () => ({ next: () => new Promise(() => undefined) }) };
}

describe("a link that is held", () => {
  test("keeps back what users send, lets control through, and sends the rest on release", async () => {
    const guest = await RawGuest.open();
    guest.link.hold();
    const process = guest.link.exec(exec);
    const flushed = guest.link.flush(5_000);
    const flush = await guest.frame(frameType.request);
    guest.respond(flush.stream);
    await flushed;
    expect(guest.frames).toHaveLength(1);
    guest.link.release();
    const { stream } = await guest.frame(frameType.request, 1);
    guest.respond(stream, 0, started);
    expect(await process).toEqual({ process: 1, pid: 9 });
  });

  test("that is closed leaves nobody waiting", async () => {
    const guest = await RawGuest.open();
    guest.link.hold();
    const process = code(guest.link.exec(exec));
    const written = code(guest.link.writeStdin(1, bytes(MIB), false));
    guest.link.close("sleep");
    expect(await process).toBe("interrupted");
    expect(await written).toBe("interrupted");
  });
});
