/** Imports in processes of their own: what is left of those that end in any way, and what is removed. */
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { afterEach, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { PerdureError } from "@perdure/protocol";
import type { Digest } from "@perdure/protocol";
import { makeBaseImage } from "../../../../test/contract/base-image.ts";
import { file, layer, ociArchive } from "../../../../test/contract/container-archive.ts";
import { SmallDisk } from "../../../../test/fixtures/small-disk.ts";
import type { Image } from "../core/ports/image-source.ts";
import { createImageStore } from "./image-store.ts";
import { createImageUses } from "./image-use.ts";
import { openImageWorkshop } from "./image-workshop.ts";
import type { OpenImageWorkshop } from "./image-workshop.ts";

let directory: string;
let workshop: OpenImageWorkshop;
const log = (): void => undefined;
const never = new AbortController().signal;

beforeEach(async () => {
  directory = await mkdtemp(path.join(os.tmpdir(), "perdure-workshop-"));
  await makeBaseImage(directory);
  workshop = await openImageWorkshop({ directory, log });
});
afterEach(async () => {
  await workshop.close();
  await rm(directory, { recursive: true });
});

const small = ociArchive({
  layers: [layer([file("app", "x", { mode: 0o755 })])],
  config: { Cmd: ["/app"] },
});
/** Takes a while to read. */
const large = ociArchive({
  layers: Array.from({ length: 30 }, (_, at) => layer([file(`f${at}`, Buffer.alloc(4 << 20, at))])),
});

async function* pieces(bytes: Buffer): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += 65_536) {
    yield await Promise.resolve(bytes.subarray(at, at + 65_536));
  }
}

async function importOf(bytes: Buffer, name: string, signal = never): Promise<Image> {
  const work = await workshop.receive({ name, start: true }, pieces(bytes));
  return work.finish(signal, () => undefined);
}

/** Names in the images directory, but for locks: they stay, with a journal where a process was killed. */
async function everything(at = directory): Promise<string[]> {
  const names = await readdir(at, { recursive: true });
  return names.filter((name) => !/lock(-journal)?$/.test(name)).sort();
}

/** Processes that have the images directory in their arguments. */
async function processes(): Promise<number[]> {
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  const words = await Promise.all(
    pids.map((pid) => readFile(`/proc/${pid}/cmdline`, "latin1").catch(() => "")),
  );
  return pids.filter((_, index) => words[index]?.includes(directory) === true).map(Number);
}

function kill(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch (error) {
    // A tool that has ended meanwhile, or ends with the one before.
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}

test("an archive becomes an image, and says what is done", async () => {
  const work = await workshop.receive({ name: "app", start: true }, pieces(small));
  const told: string[] = [];
  const image = await work.finish(never, (message) => told.push(message));
  expect(image.config).toMatchObject({ cmd: ["/app"], user: "root", start: true });
  expect(told).toContain("reading layer 1 of 1");
  expect(await workshop.facts(image)).toMatchObject({ names: ["app"], isBase: false });
  expect((await workshop.facts(image)).storedBytes).toBeGreaterThan(100_000);
  const left = (await readdir(directory)).filter((name) => name.startsWith(".work-"));
  expect(left).toEqual([]);
});

test("two imports of one archive at once are one image", async () => {
  const [one, two] = await Promise.all([importOf(small, "one"), importOf(small, "two")]);
  expect(two.id).toBe(one.id);
  expect((await workshop.facts(one)).names).toEqual(["one", "two"]);
});

describe("nothing is left of", () => {
  let before: string[];
  beforeEach(async () => {
    before = await everything();
  });
  afterEach(async () => {
    expect(await everything()).toEqual(before);
    expect(await processes()).toEqual([]);
  });

  test("an archive that is broken", async () => {
    await expect(importOf(large.subarray(0, large.length >> 1), "app")).rejects.toMatchObject({
      code: "image_archive_invalid",
    });
  });

  test("an archive whose sender goes away", async () => {
    const broken = async function* (): AsyncGenerator<Uint8Array> {
      yield await Promise.resolve(small);
      throw new PerdureError("cancelled", "The uploader went away");
    };
    await expect(workshop.receive({ name: "app", start: true }, broken())).rejects.toMatchObject({
      code: "cancelled",
    });
  });

  test("an import that was received and dropped", async () => {
    const work = await workshop.receive({ name: "app", start: true }, pieces(small));
    await work.drop();
  });

  test.each(["reading layer 2 of 30", "making the file system"])(
    "an import that is cancelled at: %s",
    async (moment) => {
      const cancel = new AbortController();
      const work = await workshop.receive({ name: "app", start: true }, pieces(large));
      const making = work.finish(cancel.signal, (message) => {
        if (message.startsWith(moment)) cancel.abort();
      });
      await expect(making).rejects.toMatchObject({ code: "cancelled" });
    },
  );

  test("an import whose process is killed", async () => {
    const work = await workshop.receive({ name: "app", start: true }, pieces(large));
    let killed = false;
    const making = work.finish(never, (message) => {
      if (killed || !message.startsWith("reading layer 2")) return;
      killed = true;
      void processes().then((pids) => pids.forEach(kill));
    });
    await expect(making).rejects.toMatchObject({
      code: "image_build_failed",
      message: expect.stringContaining("SIGKILL") as string,
    });
  });

  test("an import that the workshop's end finds", async () => {
    const work = await workshop.receive({ name: "app", start: true }, pieces(large));
    const making = work.finish(never, (message) => {
      if (message.startsWith("reading layer 2")) void workshop.close();
    });
    await expect(making).rejects.toMatchObject({ code: "cancelled" });
    workshop = await openImageWorkshop({ directory, log });
  });

  test("a name that no import may have", async () => {
    for (const name of ["debian", "Capital", "a".repeat(64)]) {
      await expect(workshop.receive({ name, start: true }, pieces(small))).rejects.toMatchObject({
        code: "bad_request",
      });
    }
  });

  test("more imports than may be under way", async () => {
    const works = await Promise.all(
      [1, 2, 3, 4].map((at) => workshop.receive({ name: `n${at}`, start: true }, pieces(small))),
    );
    await expect(
      workshop.receive({ name: "n5", start: true }, pieces(small)),
    ).rejects.toMatchObject({
      code: "too_many",
    });
    for (const work of works) await work.drop();
  });
});

/** A process with a workshop of its own, which it never finishes anything in. */
const owner = `
  import { readFileSync } from "node:fs";
  const { openImageWorkshop } = await import(process.argv[1]);
  const workshop = await openImageWorkshop({ directory: process.argv[2], log() {} });
  const bytes = readFileSync(process.argv[3]);
  const work = await workshop.receive({ name: "app", start: true }, (async function* () { yield bytes; })());
  await work.finish(new AbortController().signal, (message) => console.log(message));
`;

test("a daemon that is killed takes the work with it, and the next one finds nothing", async () => {
  const before = await everything();
  const archive = path.join(os.tmpdir(), `perdure-archive-${process.pid}`);
  await writeFile(archive, large);
  onTestFinished(() => rm(archive));
  const module = new URL("./image-workshop.ts", import.meta.url).href;
  const args = ["--input-type=module", "-e", owner, module, directory, archive];
  const daemon = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
  await new Promise<void>((seen) => {
    daemon.stdout.on("data", (text: Buffer) => {
      if (text.toString().includes("reading layer")) seen();
    });
  });
  // While its owner lives, its folder is nobody else's.
  const other = await openImageWorkshop({ directory, log });
  await other.close();
  expect((await readdir(directory)).filter((name) => name.startsWith(".work-"))).not.toEqual([
    ".work.lock",
  ]);
  daemon.kill("SIGKILL");
  await once(daemon, "close");
  await expect.poll(processes).toEqual([]);
  const next = await openImageWorkshop({ directory, log });
  await next.close();
  expect(await everything()).toEqual(before);
});

test.runIf(process.getuid?.() === 0).each<[string, number, Buffer, number]>([
  ["before it takes an archive that it could not keep", 64, small, 1 << 30],
  [
    "while the archive comes in",
    24,
    ociArchive({ layers: [layer([file("f", randomBytes(40 << 20))])] }),
    0,
  ],
  [
    "before files are unpacked that will not fit",
    64,
    ociArchive({ layers: [layer([file("f", Buffer.alloc(60 << 20))])] }),
    0,
  ],
])("a full disk ends an import %s, and nothing is left", async (_, mebibytes, archive, kept) => {
  const disk = new SmallDisk("perdure-workshop");
  disk.mountAs("tmpfs", mebibytes << 20);
  onTestFinished(() => disk.unmount());
  await makeBaseImage(disk.mount);
  const before = await everything(disk.mount);
  const onSmall = await openImageWorkshop({ directory: disk.mount, log, freeBytesKept: kept });
  const making = onSmall
    .receive({ name: "app", start: true }, pieces(archive))
    .then((work) => work.finish(never, () => undefined));
  await expect(making).rejects.toMatchObject({ code: "disk_full" });
  await onSmall.close();
  expect(await everything(disk.mount)).toEqual(before);
});

describe("an image that is removed", () => {
  test("is gone with its files, its names and the parts that nothing needs", async () => {
    const image = await importOf(small, "app");
    await importOf(small, "other");
    const part = path.join(directory, "parts/rootfs-old");
    await mkdir(part, { recursive: true });
    await writeFile(path.join(part, "rootfs.ext4"), "nobody's");
    const before = (await stat(image.kernel.path)).nlink;
    await workshop.remove(image.id);
    expect(existsSync(path.join(directory, image.id))).toBe(false);
    expect(await readdir(path.join(directory, "names"))).toEqual(["debian"]);
    expect(await readdir(path.join(directory, "parts"))).toEqual([]);
    const base = await createImageStore(directory).resolve("debian");
    expect((await stat(base.kernel.path)).nlink).toBe(before - 1);
    expect((await everything()).filter((name) => name.startsWith(".removed"))).toEqual([]);
  });

  test("is not removed while another data directory has agents of it", async () => {
    const image = await importOf(small, "app");
    const home = path.join(directory, "home");
    await mkdir(home);
    const uses = createImageUses(directory, { id: "other", home });
    await uses.hold(image.id);
    await uses.hold(image.id);
    expect(await uses.held()).toEqual([image.id]);
    await expect(workshop.remove(image.id)).rejects.toMatchObject({
      code: "image_in_use",
      message: expect.stringContaining(home) as string,
    });
    await uses.release(image.id);
    await uses.release(image.id);
    expect(await uses.held()).toEqual([]);
    await workshop.remove(image.id);
    await expect(uses.hold(image.id)).rejects.toMatchObject({ code: "image_not_found" });
  });

  test("is removed all the same where that data directory is gone", async () => {
    const image = await importOf(small, "app");
    const home = path.join(directory, "home");
    await mkdir(home);
    await createImageUses(directory, { id: "other", home }).hold(image.id);
    await rm(home, { recursive: true });
    await workshop.remove(image.id);
    expect(existsSync(path.join(directory, image.id))).toBe(false);
    expect(existsSync(path.join(directory, "uses", image.id))).toBe(false);
  });

  test("half removed is removed at the next start", async () => {
    await mkdir(path.join(directory, `.removed-${"a".repeat(64)}`));
    const next = await openImageWorkshop({ directory, log });
    await next.close();
    expect((await everything()).filter((name) => name.startsWith("."))).toEqual([]);
  });
});

test("a name can be taken from an image", async () => {
  const image = await importOf(small, "app");
  await importOf(small, "other");
  await workshop.unname("app");
  await workshop.unname("never");
  expect((await workshop.facts(image)).names).toEqual(["other"]);
  await workshop.remove("f".repeat(64) as Digest);
});
