/**
 * A guest that sends anything at all: every call ends in a typed way, nothing is left unhandled, and
 * memory stays bounded. The seed is printed; PERDURE_FUZZ_SEED repeats a run, PERDURE_FUZZ_RUNS makes it longer.
 */
import { PerdureError } from "@perdure/protocol";
import { afterAll, beforeAll, expect, test } from "vitest";
import { FakeGuest } from "./fake/fake-guest.ts";
import { reachableBytes, retainsLess } from "./fake/measure.ts";
import { RawGuest } from "./fake/raw-guest.ts";
import { duplexPair } from "node:stream";
import { hostClock } from "./host-clock.ts";
import { StreamGuestLink } from "./link.ts";
import { encodeFrame, u32, type FrameType } from "./frame.ts";
import { FieldWriter } from "./field.ts";

const RUNS = Number(process.env["PERDURE_FUZZ_RUNS"] ?? 200);
const SEED = Number(process.env["PERDURE_FUZZ_SEED"] ?? Date.now() % 2 ** 31);
const MIB = 1024 * 1024;
const unhandled: unknown[] = [];
const note = (error: unknown): void => {
  unhandled.push(error);
};

beforeAll(() => {
  console.log(`guest link fuzz: PERDURE_FUZZ_SEED=${SEED}`);
  process.on("unhandledRejection", note);
});
afterAll(() => {
  process.off("unhandledRejection", note);
  expect(unhandled).toEqual([]);
});

/** mulberry32: small, and the same everywhere. */
function randomOf(seed: number): (below: number) => number {
  let state = seed >>> 0;
  return (below) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

/** Every kind of call at once; answers how each ended. */
function everything(link: StreamGuestLink): Promise<unknown>[] {
  const exec = { argv: ["/bin/echo", "x"], env: {}, user: "user", stdin: true };
  const source = async function* (): AsyncGenerator<Uint8Array> {
    for (let i = 0; i < 4; i++) {
      await Promise.resolve();
      yield new Uint8Array(30_000);
    }
  };
  const read = async (): Promise<void> => {
    const { bytes } = await link.readFile("/home/user/f", "user");
    for await (const piece of bytes) expect(piece.length).toBeGreaterThan(0);
  };
  const attach = async (process: number): Promise<void> => {
    let at = 0;
    for await (const piece of link.attach(process, 0)) {
      if (piece.type === "output") {
        expect(piece.offset).toBe(at);
        at += piece.bytes.length;
      } else if (piece.type === "cut") {
        expect(piece.from).toBe(at);
        at = piece.to;
      }
    }
  };
  const listed = async (): Promise<void> => {
    for await (const entry of link.listFolder("/home/user", "user")) {
      expect(entry.name).toMatch(/^[^/]+$/);
    }
  };
  const watched = async (): Promise<void> => {
    let first = true;
    for await (const change of link.watch("/home", { user: "user", recursive: true })) {
      expect(change.type === "ready").toBe(first);
      first = false;
      if ("path" in change) expect(change.path).toMatch(/^\//);
    }
  };
  const terminal = { rows: 24, columns: 80 };
  const connected = async (): Promise<void> => {
    const connection = await link.connect(80, 50);
    const fed = connection.write(new Uint8Array(200_000)).then(() => connection.end());
    const heard = async (): Promise<void> => {
      while ((await connection.read()) !== null);
      connection.close();
    };
    await Promise.all([fed, heard()]);
  };
  /** Some of what is wanted is taken and read, some refused. */
  const served = async (): Promise<void> => {
    let count = 0;
    for await (const wanted of await link.openWayOut(300)) {
      const { name, address, port } = wanted;
      expect(name ?? "a").toMatch(/^[a-z0-9._-]{1,253}$/);
      expect(address).toMatch(/^\d+\.\d+\.\d+\.\d+$/);
      expect(port >= 1 && port <= 65_535).toBe(true);
      if (++count > 20) return;
      const taken = await wanted.take();
      if (count % 3 > 0) while ((await taken.read()) !== null);
      taken.close();
    }
  };
  return [
    link.info(300),
    link.setClock(300),
    link.runHooks(1),
    link.stats(),
    link.timers(),
    link.activity(),
    link.exec(exec),
    link.exec({ ...exec, terminal }),
    link.resizeTerminal(2, terminal),
    listed(),
    watched(),
    connected(),
    served(),
    link.makeFolder("/home/user/d", { user: "user", mode: 0o755, parents: true }),
    link.movePath("/home/user/d", "/home/user/e", { user: "user", replace: false }),
    link.removePath("/home/user/e", { user: "user", recursive: true }),
    link.processes(),
    attach(1),
    attach(2),
    link.writeStdin(1, new Uint8Array(100_000), true),
    link.signal(1, 9, true, 1),
    link.stat("/home/user", "user"),
    read(),
    link.writeFile("/home/user/f", { user: "user", mode: 0o600, size: 120_000 }, source()),
  ].map((work) =>
    Promise.resolve(work).then(
      () => null,
      (error: unknown) => error,
    ),
  );
}

async function allTyped(link: StreamGuestLink, ends: Promise<unknown>[]): Promise<void> {
  const late = setTimeout(() => link.close("the test is over"), 100);
  for (const end of await Promise.all(ends)) {
    if (end === null) continue;
    expect(end).toBeInstanceOf(PerdureError);
    expect((end as PerdureError).code).not.toBe("internal");
  }
  clearTimeout(late);
  link.close("done");
}

/** An honest guest whose bytes are changed on the way, from the `from`th byte on. */
async function mutated(random: (below: number) => number): Promise<void> {
  const guest = new FakeGuest();
  const [host, middleHost] = duplexPair();
  const [middleGuest, port] = duplexPair();
  guest.serve(port);
  const from = 48 + random(4000);
  const rate = 1 + random(400);
  let passed = 0;
  middleHost.on("data", (chunk: Buffer) => middleGuest.write(chunk));
  middleGuest.on("data", (chunk: Buffer) => {
    const bytes = Buffer.from(chunk);
    for (let i = 0; i < bytes.length; i++) {
      if (passed++ < from || random(rate) !== 0) continue;
      bytes[i] = random(3) === 0 ? random(256) : (bytes[i] ?? 0) ^ (1 << random(8));
    }
    const end = passed > from && random(50) === 0 ? random(bytes.length + 1) : bytes.length;
    middleHost.write(bytes.subarray(0, end));
  });
  for (const side of [middleHost, middleGuest]) side.on("error", () => undefined);
  const link = new StreamGuestLink(host, hostClock);
  await link.sync(1, 10_000);
  link.letOut();
  const ends = everything(link);
  // Programs inside connect once the way out is open.
  for (let i = 0; i < 5; i++) {
    await new Promise((resolve) => setImmediate(resolve));
    guest.wayOut
      .dial({ name: i === 0 ? null : `n${i}.example`, address: 9, port: 80 + i })
      .end("x");
  }
  await allTyped(link, ends);
  guest.kill();
}

/** A guest that makes up frames: right in form, wrong in everything else. */
async function invented(random: (below: number) => number): Promise<void> {
  const guest = await RawGuest.open();
  const ends = everything(guest.link);
  const state = { open: true };
  void guest.link.closed.then(() => {
    state.open = false;
  });
  for (let i = 0; state.open && i < 400; i++) {
    const fields = new FieldWriter();
    for (let n = random(6); n > 0; n--) {
      const tag = 1 + random(64);
      if (random(3) === 0) fields.bytes(tag, Buffer.alloc(random(40), random(256)));
      else if (random(2) === 0) fields.string(tag, "file");
      else fields.number(tag, random(4) === 0 ? 2n ** 64n - 1n : random(300));
    }
    const status = random(3) === 0 ? random(30) : 0;
    const some = random(4) === 0 ? Buffer.alloc(random(60), random(256)) : fields.finish();
    // As a record of a folder or a watch, now and then of another length than it says.
    const payload =
      random(3) === 0
        ? Buffer.concat([u32(some.length + (random(8) === 0 ? random(40) : 0)), some])
        : some;
    const kinds = [2, 2, 2, 3, 4, 5, 7];
    const type = (random(20) === 0 ? 1 + random(7) : kinds[random(kinds.length)]) as FrameType;
    const prefix = type === 2 || type === 4 || type === 7 ? [Uint8Array.of(status, 0)] : [];
    const body =
      type === 5 && random(8) > 0 ? Uint8Array.of(random(256), random(200), 0, 0) : payload;
    guest.write(
      encodeFrame(type, random(10) === 0 ? random(2 ** 32) : random(31), ...prefix, body),
    );
    if (i % 20 === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  await allTyped(guest.link, ends);
}

/** A guest that sends bytes without any form. */
async function garbage(random: (below: number) => number): Promise<void> {
  const guest = await RawGuest.open();
  const ends = everything(guest.link);
  for (let i = 0; i < 20; i++) {
    guest.write(
      Buffer.from(Array.from({ length: random(200) }, () => random(random(2) ? 256 : 12))),
    );
  }
  await allTyped(guest.link, ends);
}

test.each([
  ["changed bytes of an honest guest", mutated],
  ["invented frames", invented],
  ["bytes without form", garbage],
])(
  "%s end every call in a typed way, within bounded memory",
  { timeout: 600_000 },
  async (_n, run) => {
    const before = reachableBytes();
    for (let i = 0; i < RUNS; i++) {
      const random = randomOf(SEED + i);
      try {
        await run(random);
      } catch (error) {
        throw new Error(`Run ${i} of seed ${SEED} failed`, { cause: error });
      }
      await new Promise((resolve) => setImmediate(resolve));
    }
    await retainsLess(before, 64 * MIB);
    expect(unhandled).toEqual([]);
  },
);
