/** Guest agents of older versions of the protocol: they are spoken to as before, and spared what is newer. */
import { PerdureError } from "@perdure/protocol";
import { describe, expect, test } from "vitest";
import type { GuestLink } from "../core/ports/guest-link.ts";
import { FakeGuest } from "./fake/fake-guest.ts";
import { FakeGuestLinks } from "./fake/fake-links.ts";
import { RawGuest } from "./fake/raw-guest.ts";
import { FieldWriter } from "./field.ts";
import { frameType } from "./frame.ts";
import { operation, tag } from "./operation.ts";

const user = "user";
const terminal = { rows: 24, columns: 80 };
const program = { argv: ["/bin/sh", "-c", "echo fine"], env: {}, user, stdin: false };

async function letOut(version: number): Promise<GuestLink> {
  const links = new FakeGuestLinks();
  links.put("guest", new FakeGuest({ version }));
  const link = await links.connect("guest");
  await link.sync(1, 10_000);
  link.letOut();
  return link;
}

async function* nothing(): AsyncGenerator<Uint8Array> {}

const firstOf = (items: AsyncIterable<unknown>): Promise<unknown> =>
  items[Symbol.asyncIterator]().next();

/** Each operation that version 1 lacks. */
const newer: [string, (link: GuestLink) => Promise<unknown>][] = [
  ["exec on a terminal", (link) => link.exec({ ...program, terminal })],
  ["resizeTerminal", (link) => link.resizeTerminal(1, terminal)],
  ["listFolder", (link) => firstOf(link.listFolder("/tmp", user))],
  ["makeFolder", (link) => link.makeFolder("/tmp/d", { user, mode: 0o755, parents: false })],
  ["movePath", (link) => link.movePath("/tmp/a", "/tmp/b", { user, replace: false })],
  ["removePath", (link) => link.removePath("/tmp/a", { user, recursive: false })],
  ["watch", (link) => firstOf(link.watch("/tmp", { user, recursive: false }))],
  ...newest(),
];

/** Each that version 2 lacks. */
function newest(): [string, (link: GuestLink) => Promise<unknown>][] {
  const marked = { user, mode: 0o644, size: 0, attributes: { a: "b" } };
  return [
    ["connect", (link) => link.connect(80, 1000)],
    ["writeFile with attributes", (link) => link.writeFile("/tmp/a", marked, nothing())],
  ];
}

describe.each([
  [1, newer],
  [2, newest()],
])("a guest of version %i", (version, lacking) => {
  test.each(lacking)("%s is refused without a word to it", async (_name, work) => {
    const guest = new RawGuest();
    guest.version = version;
    await guest.link.sync(1, 10_000);
    guest.link.letOut();
    const error = await work(guest.link).then(
      () => expect.unreachable(),
      (cause: unknown) => cause,
    );
    expect(error).toBeInstanceOf(PerdureError);
    expect(error).toMatchObject({ code: "not_supported", details: { guestVersion: version } });
    await new Promise((resolve) => setImmediate(resolve));
    expect(guest.frames).toEqual([]);
    guest.link.close("test");
  });
});

describe("a guest of version 1", () => {
  test("does all that it always did", async () => {
    const link = await letOut(1);
    const { process } = await link.exec(program);
    const seen: string[] = [];
    for await (const piece of link.attach(process, 0)) {
      if (piece.type === "output") seen.push(Buffer.from(piece.bytes).toString());
    }
    expect(seen.join("")).toBe("fine\n");
    const bytes = Buffer.from("0123456789");
    const source = async function* (): AsyncGenerator<Uint8Array> {
      yield await Promise.resolve(bytes);
    };
    await link.writeFile("/tmp/f", { user, mode: 0o600, size: 10 }, source());
    const part = await link.readFile("/tmp/f", user, { offset: 2, length: 3 });
    const read: Uint8Array[] = [];
    for await (const piece of part.bytes) read.push(piece);
    expect(Buffer.concat(read).toString()).toBe("234");
    link.close("test");
  });

  test("is asked for its statistics to learn of its activity", async () => {
    const guest = new RawGuest();
    guest.version = 1;
    await guest.link.sync(1, 10_000);
    const asked = guest.link.activity();
    const { stream, payload } = await guest.frame(frameType.request);
    expect(payload.readUInt16LE(0)).toBe(operation.stats);
    const stat = (name: string, value: number): FieldWriter =>
      new FieldWriter().string(tag.name, name).number(tag.value, value);
    guest.respond(
      stream,
      0,
      new FieldWriter()
        .nested(tag.stat, stat("cpuUsec", 7))
        .nested(tag.stat, stat("diskWriteBytes", 8)),
    );
    expect(await asked).toEqual({
      cpuUsec: 7,
      diskWriteBytes: 8,
      execs: null,
      fileWrites: null,
      attached: null,
    });
    guest.link.close("test");
  });
});

test.each(newer)("%s is sent to a guest of version 3", async (_name, work) => {
  const guest = await RawGuest.open();
  const pending = work(guest.link).catch(() => undefined);
  const { payload } = await guest.frame(frameType.request);
  expect(payload.readUInt16LE(0)).toBeGreaterThan(0);
  guest.link.close("test");
  await pending;
});
