/** Files through the client, against the real server: parts, folders, large streams, and watches that outlive sleeps. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { PerdureError } from "@perdure/protocol";
import type { FakeFiles } from "../../../test/contract/api/fake-files.ts";
import { openFakeServer } from "../../../test/contract/api/fake-server.ts";
import type { FakeServer } from "../../../test/contract/api/fake-server.ts";
import type { FileEvent } from "./file-watch.ts";
import { Perdure } from "./perdure.ts";

let folder: string;
let socketPath: string;
let fake: FakeServer;
let perdure: Perdure;
let files: FakeFiles;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "perdure-sdk-file-"));
  socketPath = join(folder, "run", "perdure.sock");
  fake = await openFakeServer(socketPath, folder);
  perdure = new Perdure({ socketPath });
  await perdure.create({ name: "a1" });
  files = fake.commands.filesOf("a1");
});
afterEach(async () => {
  await perdure.close();
  await fake.close();
  await rm(folder, { recursive: true });
});

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const list: T[] = [];
  for await (const item of items) list.push(item);
  return list;
}
const stateOf = async (): Promise<string> => (await perdure.show("a1")).state;

describe("parts of a file", () => {
  beforeEach(() => perdure.writeFile("a1", "/f", "0123456789"));
  const part = async (options: { offset?: number; length?: number }): Promise<string> =>
    (await perdure.readFile("a1", "/f", options)).text();

  it("are read by offset and length", async () => {
    expect(await part({ offset: 3 })).toBe("3456789");
    expect(await part({ length: 2 })).toBe("01");
    expect(await part({ offset: 8, length: 99 })).toBe("89");
    expect((await perdure.readFile("a1", "/f", { offset: 3 })).facts.size).toBe(10);
  });

  it("are refused where there are none", async () => {
    await expect(part({ offset: 10 })).rejects.toMatchObject({
      code: "range_not_satisfiable",
      details: { size: 10 },
    });
    for (const bounds of [{ length: 0 }, { offset: -1 }, { offset: 0.5 }, { length: NaN }]) {
      await expect(part(bounds)).rejects.toMatchObject({ code: "bad_request" });
    }
  });

  it("say so where the file became shorter meanwhile", async () => {
    const original = fake.commands.readFile.bind(fake.commands);
    fake.commands.readFile = async (target) => {
      const { facts, bytes } = await original({ ...target, range: { offset: 2, length: 3 } });
      return { facts, bytes };
    };
    expect(await part({ offset: 2, length: 3 })).toBe("234");
    await expect(part({ offset: 2, length: 4 })).rejects.toMatchObject({ code: "size_mismatch" });
  });
});

describe("folders", () => {
  it("are made, listed, moved and removed", async () => {
    await perdure.makeFolder("a1", "/d/e", { parents: true, mode: 0o700 });
    await perdure.writeFile("a1", "/d/e/\u{1f600}\n", "hi", { mode: 0o640 });
    files.link("/d/e/link", "..");
    const facts = { uid: 1000, gid: 1000, mtimeMs: 1_700_000_000_000 };
    expect(await all(perdure.listFolder("a1", "/d/e"))).toEqual([
      { name: "\u{1f600}\n", kind: "file", size: 2, mode: 0o640, linkTarget: null, ...facts },
      { name: "link", kind: "link", size: 0, mode: 0o777, linkTarget: "..", ...facts },
    ]);
    await perdure.movePath("a1", "/d/e", "/m");
    expect(await perdure.stat("a1", "/m")).toEqual({
      ...{ kind: "directory", size: 0, mode: 0o700 },
      ...facts,
    });
    await expect(perdure.removePath("a1", "/m")).rejects.toMatchObject({ code: "path_not_empty" });
    await perdure.removePath("a1", "/m", { recursive: true });
    await expect(perdure.stat("a1", "/m")).rejects.toMatchObject({ code: "path_not_found" });
  });

  it("throw what broke their list, also where it just stops", async () => {
    const entry = { kind: "file", size: 0, mode: 0, uid: 0, gid: 0, mtimeMs: 0, linkTarget: null };
    fake.commands.listFolder = () =>
      Promise.resolve(
        (async function* () {
          yield await Promise.resolve({ name: "a", ...entry } as never);
          throw new PerdureError("guest_timeout", "The guest does not answer");
        })(),
      );
    const listing = perdure.listFolder("a1", "/d");
    expect((await listing.next()).value).toMatchObject({ name: "a" });
    await expect(listing.next()).rejects.toMatchObject({ code: "guest_timeout" });
  });
});

describe("a large file", () => {
  const MIB = 1024 * 1024;
  const size = (process.env["PERDURE_TIER"] === "soak" ? 2048 : 384) * MIB;
  const piece = new Uint8Array(256 * 1024);

  async function* pieces(): AsyncGenerator<Uint8Array> {
    for (let sent = 0; sent < size; sent += piece.length) yield await Promise.resolve(piece);
  }
  /** Most that both ends together hold in buffers while `work` runs. */
  async function peakOf(work: (look: () => void) => Promise<void>): Promise<number> {
    const before = process.memoryUsage().arrayBuffers;
    let peak = 0;
    await work(() => (peak = Math.max(peak, process.memoryUsage().arrayBuffers - before)));
    return peak;
  }

  it(
    "goes in and comes out through bounded memory at both ends",
    { timeout: 300_000 },
    async () => {
      let written = 0;
      let look = (): void => undefined;
      fake.commands.writeFile = async (_target, bytes) => {
        for await (const chunk of bytes) {
          written += chunk.length;
          look();
        }
      };
      const facts = { kind: "file", size, mode: 0o644, uid: 0, gid: 0, mtimeMs: 0 } as const;
      fake.commands.readFile = () => Promise.resolve({ facts, bytes: pieces() });
      const up = await peakOf(async (looking) => {
        look = looking;
        await perdure.writeFile("a1", "/large", pieces(), { size });
      });
      expect(written).toBe(size);
      let read = 0;
      const down = await peakOf(async (looking) => {
        for await (const chunk of (await perdure.readFile("a1", "/large")).bytes) {
          read += chunk.length;
          looking();
        }
      });
      expect(read).toBe(size);
      expect(Math.max(up, down)).toBeLessThan(size / 3);
    },
  );

  it("is not read faster than it is taken", async () => {
    let produced = 0;
    const facts = { kind: "file", size, mode: 0o644, uid: 0, gid: 0, mtimeMs: 0 } as const;
    const counted = async function* (): AsyncGenerator<Uint8Array> {
      for await (const each of pieces()) {
        produced += each.length;
        yield each;
      }
    };
    fake.commands.readFile = () => Promise.resolve({ facts, bytes: counted() });
    const { bytes } = await perdure.readFile("a1", "/large");
    const reading = bytes[Symbol.asyncIterator]();
    await reading.next();
    let before = -1;
    await expect
      .poll(() => produced === before || ((before = produced), false), { interval: 200 })
      .toBe(true);
    expect(produced).toBeLessThan(16 * MIB);
    await reading.return?.();
  });
});

describe("a watch", () => {
  beforeEach(() => perdure.writeFile("a1", "/d/a", "x"));
  const next = async (events: AsyncGenerator<FileEvent, undefined>) => (await events.next()).value;

  it("is cut by a sleep, does not wake the agent, and goes on after the wake with missed", async () => {
    const events = perdure.watch("a1", "/d");
    expect(await next(events)).toEqual({ type: "ready" });
    await perdure.writeFile("a1", "/d/b", "x");
    expect(await next(events)).toEqual({ type: "created", path: "/d/b" });
    await perdure.sleep("a1");
    expect(await next(events)).toEqual({ type: "interrupted", reason: "sleep" });
    const later = next(events);
    await new Promise((resolve) => setTimeout(resolve, 500));
    expect(await stateOf()).toBe("asleep");
    await perdure.wake("a1");
    expect(await later).toEqual({ type: "missed" });
    await perdure.writeFile("a1", "/d/c", "x");
    expect(await next(events)).toEqual({ type: "created", path: "/d/c" });
    await events.return(undefined);
    await expect.poll(() => files.watchers).toBe(0);
  });

  it("is cut by the end of its daemon, and goes on with the next one", async () => {
    const events = perdure.watch("a1", "/d");
    expect(await next(events)).toEqual({ type: "ready" });
    await fake.server.close();
    expect(await next(events)).toEqual({ type: "interrupted", reason: "daemon" });
    const later = next(events);
    fake = await openFakeServer(socketPath, folder, { commands: fake.commands });
    expect(await later).toEqual({ type: "missed" });
    await events.return(undefined);
  });

  it("ends after interrupted where it is told so, and at the first refusal", async () => {
    const events = all(perdure.watch("a1", "/d", { reattach: false }));
    await expect.poll(() => files.watchers).toBe(1);
    await perdure.sleep("a1");
    expect((await events).map(({ type }) => type)).toEqual(["ready", "interrupted"]);
    const refused = perdure.watch("a1", "/none").next();
    await expect(refused).rejects.toMatchObject({ code: "path_not_found" });
  });

  it.each([
    [
      "its signal",
      (stop: AbortController) => Promise.resolve().then(() => stop.abort()),
      "cancelled",
    ],
    ["the end of its client", () => perdure.close(), "cancelled"],
    ["the removal of its agent", () => perdure.remove("a1"), "agent_not_found"],
  ])("waits for a wake no longer than %s", async (_title, end, code) => {
    const stop = new AbortController();
    const events = perdure.watch("a1", "/d", { signal: stop.signal });
    await next(events);
    await perdure.sleep("a1");
    await next(events);
    const later = events.next();
    const refused = expect(later).rejects.toMatchObject({ code });
    await end(stop);
    await refused;
  });

  it("ends where the path itself is gone", async () => {
    const events = all(perdure.watch("a1", "/d/a"));
    await expect.poll(() => files.watchers).toBe(1);
    await perdure.removePath("a1", "/d/a");
    expect((await events).map(({ type }) => type)).toEqual(["ready", "removed"]);
  });
});
