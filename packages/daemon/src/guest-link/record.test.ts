/** Streams of records: cut anywhere, malformed in every way, and bounded. */
import type { PerdureError } from "@perdure/protocol";
import { describe, expect, test } from "vitest";
import type { FileChange, FolderEntry } from "../core/ports/guest-link.ts";
import { RawGuest } from "./fake/raw-guest.ts";
import { FieldWriter } from "./field.ts";
import { frameType, u32 } from "./frame.ts";
import { tag } from "./operation.ts";
import { WINDOW_BYTES } from "./receiver.ts";
import { RECORD_BYTES_MAX } from "./record.ts";

function record(fields: FieldWriter): Buffer {
  const bytes = fields.finish();
  return Buffer.concat([u32(bytes.length), bytes]);
}

function facts(kind = "file"): FieldWriter {
  return new FieldWriter()
    .string(tag.kind, kind)
    .number(tag.size, 3)
    .number(tag.mode, 0o644)
    .number(tag.uid, 1000)
    .number(tag.gid, 1000)
    .number(tag.mtimeNs, 5_000_000);
}

function named(name: string | Uint8Array): FieldWriter {
  const bytes = typeof name === "string" ? Buffer.from(name) : name;
  return new FieldWriter().bytes(tag.name, bytes);
}

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) found.push(item);
  return found;
}

async function listing(
  send: (guest: RawGuest, stream: number) => void,
): Promise<FolderEntry[] | PerdureError> {
  const guest = await RawGuest.open();
  const listed = all(guest.link.listFolder("/tmp", "user")).catch((error: unknown) => error);
  const { stream } = await guest.frame(frameType.request);
  guest.respond(stream);
  send(guest, stream);
  const found = await listed;
  guest.link.close("test");
  return found as FolderEntry[] | PerdureError;
}

async function changes(...records: Buffer[]): Promise<FileChange[] | PerdureError> {
  const guest = await RawGuest.open();
  const watch = guest.link.watch("/tmp", { user: "user", recursive: true });
  const told = all(watch).catch((error: unknown) => error);
  const { stream } = await guest.frame(frameType.request);
  guest.respond(stream);
  for (const each of records) guest.send(frameType.data, stream, each);
  guest.end(stream);
  const found = await told;
  guest.link.close("test");
  return found as FileChange[] | PerdureError;
}

describe("records", () => {
  test("come whole, wherever the bytes are cut", async () => {
    const names = Array.from({ length: 40 }, (_, i) => `${"x".repeat(i)}${i}`);
    const whole = Buffer.concat(names.map((name) => record(named(name).add(facts()))));
    for (const step of [1, 3, 7, 64, 1000, whole.length]) {
      const found = await listing((guest, stream) => {
        for (let at = 0; at < whole.length; at += step) {
          guest.send(frameType.data, stream, whole.subarray(at, at + step));
        }
        guest.end(stream);
      });
      expect(found).toHaveLength(names.length);
      expect((found as FolderEntry[]).map(({ name }) => name)).toEqual(names);
    }
  });

  test("a name that is not UTF-8 is seen, and a link says where it leads", async () => {
    const found = await listing((guest, stream) => {
      const odd = named(Uint8Array.of(0x61, 0xff)).add(facts());
      const link = named("l").add(facts("link")).string(tag.target, "../up");
      guest.send(frameType.data, stream, record(odd), record(link));
      guest.end(stream);
    });
    const common = { size: 3, mode: 0o644, uid: 1000, gid: 1000, mtimeMs: 5 };
    expect(found).toEqual([
      { name: "a\u{fffd}", kind: "file", linkTarget: null, ...common },
      { name: "l", kind: "link", linkTarget: "../up", ...common },
    ]);
  });

  test.each<[string, Uint8Array]>([
    ["a record cut short", u32(5)],
    ["an entry without a name", record(facts())],
    ["an entry named .", record(named(".").add(facts()))],
    ["an entry named ..", record(named("..").add(facts()))],
    ["an entry with a slash in its name", record(named("a/b").add(facts()))],
    ["an entry with a zero byte in its name", record(named("a\0").add(facts()))],
    ["an entry with a name too long", record(named("n".repeat(256)).add(facts()))],
    ["an entry without facts", record(named("a"))],
    ["a link that leads nowhere", record(named("a").add(facts("link")))],
    ["a file that leads somewhere", record(named("a").add(facts()).string(tag.target, "b"))],
  ])("%s breaks the protocol", async (_name, bytes) => {
    const error = await listing((guest, stream) => {
      guest.send(frameType.data, stream, bytes);
      guest.end(stream);
    });
    expect(error).toMatchObject({ code: "guest_protocol_violation" });
  });

  test("one above the limit breaks the protocol before it is there", async () => {
    const whole = record(named("a").add(facts()).bytes(60_000, new Uint8Array(RECORD_BYTES_MAX)));
    const error = await listing((guest, stream) => {
      guest.send(frameType.data, stream, whole.subarray(0, 4));
    });
    expect(error).toMatchObject({ code: "guest_protocol_violation" });
  });

  test("a failure half-way comes after what came before it", async () => {
    const guest = await RawGuest.open();
    const iterator = guest.link.listFolder("/tmp", "user")[Symbol.asyncIterator]();
    const first = iterator.next();
    const { stream } = await guest.frame(frameType.request);
    guest.respond(stream);
    guest.send(frameType.data, stream, record(named("a").add(facts())));
    guest.end(stream, 19, new FieldWriter().string(tag.message, "EIO"));
    expect((await first).value).toMatchObject({ name: "a" });
    await expect(iterator.next()).rejects.toMatchObject({ code: "guest_error" });
    guest.link.close("test");
  });

  test("are asked for no faster than they are taken", async () => {
    const guest = await RawGuest.open();
    const iterator = guest.link.listFolder("/tmp", "user")[Symbol.asyncIterator]();
    const first = iterator.next();
    const { stream } = await guest.frame(frameType.request);
    guest.respond(stream);
    const one = record(named("n".repeat(200)).add(facts()));
    const fitting = Math.floor(WINDOW_BYTES / one.length);
    for (let i = 0; i < fitting; i++) guest.send(frameType.data, stream, one);
    await first;
    await guest.link.info(1).catch(() => undefined);
    const granted = guest.frames
      .filter((frame) => frame.type === frameType.window && frame.stream === stream)
      .reduce((sum, frame) => sum + frame.payload.readUInt32LE(0), 0);
    expect(granted).toBe(WINDOW_BYTES);
    for (let i = 1; i < fitting; i++) await iterator.next();
    const more = await guest.frame(
      frameType.window,
      guest.frames.findIndex((frame) => frame.type === frameType.window) + 1,
    );
    expect(more.payload.readUInt32LE(0)).toBeGreaterThan(0);
    guest.send(frameType.data, stream, one, one);
    expect((await iterator.next()).done).toBe(false);
    guest.link.close("test");
  });
});

describe("changes", () => {
  const change = (kind: string, path = "/tmp/a"): FieldWriter =>
    new FieldWriter().string(tag.kind, kind).string(tag.path, path);

  test("are told in order, after `ready`", async () => {
    const moved = change("moved").string(tag.from, "/tmp/b");
    const missed = new FieldWriter().string(tag.kind, "missed");
    expect(await changes(record(change("created")), record(moved), record(missed))).toEqual([
      { type: "ready" },
      { type: "created", path: "/tmp/a" },
      { type: "moved", path: "/tmp/a", from: "/tmp/b" },
      { type: "missed" },
    ]);
  });

  test.each<[string, FieldWriter]>([
    ["of an unknown kind", change("ready")],
    ["without a path", new FieldWriter().string(tag.kind, "created")],
    ["of a path that is none", change("created", "tmp")],
    ["that moved from nowhere", change("moved")],
    ["that is from somewhere without a move", change("created").string(tag.from, "/tmp/b")],
    ["of a path too long", change("created", `/${"x".repeat(9000)}`)],
  ])("%s break the protocol", async (_name, fields) => {
    expect(await changes(record(fields))).toMatchObject({ code: "interrupted" });
  });

  test("what refuses the watch comes before `ready`", async () => {
    const guest = await RawGuest.open();
    const watch = guest.link.watch("/tmp", { user: "user", recursive: false });
    const first = watch[Symbol.asyncIterator]().next();
    const { stream } = await guest.frame(frameType.request);
    guest.respond(stream, 7);
    await expect(first).rejects.toMatchObject({ code: "path_not_found" });
    guest.link.close("test");
  });
});
