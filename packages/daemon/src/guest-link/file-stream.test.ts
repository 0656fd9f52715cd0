/** Large files each way: what is held at this end is bounded by credit, however large the file is. */
import { duplexPair } from "node:stream";
import { describe, expect, test } from "vitest";
import { reachableBytes } from "./fake/measure.ts";
import { FieldWriter } from "./field.ts";
import { encodeFrame, FrameParser, frameType, u16, u32, type FrameSink } from "./frame.ts";
import { hostClock } from "./host-clock.ts";
import { StreamGuestLink } from "./link.ts";
import { tag } from "./operation.ts";
import { WINDOW_BYTES } from "./receiver.ts";
import { GREETING_BYTES, syncedMagic } from "./resync.ts";
import { CREDIT_BYTES_MAX } from "./stream.ts";
import { BULK_QUEUE_BYTES } from "./transport.ts";

const MIB = 1024 * 1024;
const FILE_BYTES = 512 * MIB;
const PIECE = new Uint8Array(64 * 1024).fill(7);
/** Far less than the file. What was collected a moment ago counts still, see `reachableBytes`. */
const HELD_BYTES_MAX = 96 * MIB;
const STREAM = 1;

/** A guest that keeps nothing: `onFrame` answers. */
async function open(
  onFrame: (...frame: [...Parameters<FrameSink>, send: (frame: Uint8Array) => void]) => void,
): Promise<StreamGuestLink> {
  const [host, guest] = duplexPair();
  const link = new StreamGuestLink(host, hostClock);
  let greeted = false;
  const send = (frame: Uint8Array): void => void guest.write(frame);
  const parser = new FrameParser((type, stream, payload) => onFrame(type, stream, payload, send));
  guest.on("data", (chunk: Buffer) => {
    if (greeted) {
      parser.push(chunk);
      return;
    }
    greeted = true;
    const rest = Buffer.concat([u32(2), chunk.subarray(36, 40), Buffer.alloc(8)]);
    send(Buffer.concat([syncedMagic, chunk.subarray(16, 32), rest]));
    parser.push(chunk.subarray(GREETING_BYTES));
  });
  await link.sync(1, 10_000);
  link.letOut();
  return link;
}

/** Grows by what is held at most, whenever a further part of the file went by. */
class Meter {
  readonly #before = reachableBytes();
  #next = 0;
  most = 0;

  passed(bytes: number): void {
    if (bytes < this.#next) return;
    this.#next += FILE_BYTES / 16;
    this.most = Math.max(this.most, reachableBytes() - this.#before);
  }
}

describe("a file larger than any buffer", () => {
  test("is sent as the guest takes it", { timeout: 300_000 }, async () => {
    let granted = 256 * 1024;
    let taken = 0;
    const link = await open((type, stream, payload, send) => {
      if (type === frameType.request) send(encodeFrame(frameType.window, stream, u32(granted)));
      if (type === frameType.end) send(encodeFrame(frameType.response, stream, u16(0)));
      if (type !== frameType.data) return;
      taken += payload.length;
      if (granted - taken > 64 * 1024) return;
      granted += 128 * 1024;
      send(encodeFrame(frameType.window, stream, u32(128 * 1024)));
    });
    const meter = new Meter();
    let given = 0;
    let ahead = 0;
    const source = async function* (): AsyncGenerator<Uint8Array> {
      while (given < FILE_BYTES) {
        ahead = Math.max(ahead, given - taken);
        meter.passed(given);
        given += PIECE.length;
        yield await Promise.resolve(PIECE);
      }
    };
    const options = { user: "user", mode: 0o600, size: FILE_BYTES };
    await link.writeFile("/home/user/large", options, source());
    expect(taken).toBe(FILE_BYTES);
    expect(ahead).toBeLessThanOrEqual(CREDIT_BYTES_MAX + BULK_QUEUE_BYTES);
    expect(meter.most).toBeLessThan(HELD_BYTES_MAX);
    link.close("test");
  });

  test("is asked for as it is taken", { timeout: 300_000 }, async () => {
    let credit = 0;
    let sent = 0;
    let most = 0;
    const facts = new FieldWriter()
      .string(tag.kind, "file")
      .number(tag.size, FILE_BYTES)
      .number(tag.mode, 0o600)
      .number(tag.uid, 0)
      .number(tag.gid, 0)
      .number(tag.mtimeNs, 0);
    const link = await open((type, stream, payload, send) => {
      if (type === frameType.request) {
        send(encodeFrame(frameType.response, stream, u16(0), facts.finish()));
      }
      if (type !== frameType.window) return;
      credit += Buffer.from(payload).readUInt32LE(0);
      while (credit > 0 && sent < FILE_BYTES) {
        const bytes = PIECE.subarray(0, Math.min(PIECE.length, credit, FILE_BYTES - sent));
        credit -= bytes.length;
        sent += bytes.length;
        send(encodeFrame(frameType.data, STREAM, bytes));
      }
      if (sent === FILE_BYTES) send(encodeFrame(frameType.end, STREAM, u16(0)));
    });
    const meter = new Meter();
    const { bytes } = await link.readFile("/home/user/large", "user");
    let taken = 0;
    for await (const piece of bytes) {
      most = Math.max(most, sent - taken);
      taken += piece.length;
      meter.passed(taken);
    }
    expect(taken).toBe(FILE_BYTES);
    expect(most).toBeLessThanOrEqual(WINDOW_BYTES + PIECE.length);
    expect(meter.most).toBeLessThan(HELD_BYTES_MAX);
    link.close("test");
  });
});
