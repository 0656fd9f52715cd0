/** Folders into archives and back; what a hostile guest may send instead. */
import { execFileSync } from "node:child_process";
import {
  chmodSync,
  linkSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, normalize, relative } from "node:path";
import { gzipSync } from "node:zlib";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import {
  file,
  folder,
  hardlink,
  symlink,
  tar,
  withChecksum,
} from "../../../test/contract/container-archive.ts";
import { Random } from "../../../test/simulation/random.ts";
import { emptyFolderCopy, packFolder, unpackFolder } from "./folder-archive.ts";
import type { FolderCopy } from "./folder-archive.ts";

let place: string;
let target: string;

beforeEach(() => {
  place = mkdtempSync(join(tmpdir(), "perdure-folder-archive-"));
  target = join(place, "target");
  mkdirSync(target);
  writeFileSync(join(place, "outside"), "untouched");
});
afterEach(() => rmSync(place, { recursive: true, force: true }));

async function* pieces(bytes: Buffer, size = bytes.length): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += size) {
    yield await Promise.resolve(bytes.subarray(at, at + size));
  }
}

async function unpacked(bytes: Buffer, size?: number): Promise<FolderCopy> {
  const copy = emptyFolderCopy();
  await unpackFolder(pieces(bytes, size), target, copy);
  return copy;
}

async function packed(from: string): Promise<{ bytes: Buffer; copy: FolderCopy }> {
  const copy = emptyFolderCopy();
  const bytes = Buffer.concat(await Array.fromAsync(packFolder(from, copy)));
  return { bytes, copy };
}

/** A folder's mode and every name below it with what it is, as `ls` would tell. */
function told(root: string): string[] {
  return [(lstatSync(root).mode & 0o7777).toString(8), ...toldBelow(root)];
}

function toldBelow(root: string, at = ""): string[] {
  return readdirSync(join(root, at))
    .sort()
    .flatMap((name) => {
      const path = join(at, name);
      const facts = lstatSync(join(root, path));
      const mode = (facts.mode & 0o7777).toString(8);
      if (facts.isDirectory()) return [`${path}/ ${mode}`, ...toldBelow(root, path)];
      if (facts.isSymbolicLink()) return [`${path} -> ${readlinkSync(join(root, path))}`];
      return [`${path} ${mode} ${readFileSync(join(root, path)).toString("base64")}`];
    });
}

describe("a folder", () => {
  function makeSource(): string {
    const source = join(place, "source");
    mkdirSync(join(source, "deep", "er"), { recursive: true });
    mkdirSync(join(source, "empty"), { mode: 0o700 });
    writeFileSync(join(source, "plain"), "hello");
    writeFileSync(join(source, "nothing"), "");
    writeFileSync(join(source, "deep", "er", "run"), "#!/bin/sh\n", { mode: 0o755 });
    writeFileSync(join(source, `${"long".repeat(50)} ünï`), Buffer.alloc(3_000_000, 7));
    writeFileSync(join(source, " -a\nb'$"), "odd");
    symlinkSync("../plain", join(source, "deep", "up"));
    symlinkSync("deep/er", join(source, "down"));
    linkSync(join(source, "plain"), join(source, "deep", "same"));
    // A chain of links, as of libraries, that is read in one order and the other.
    symlinkSync("chain-b", join(source, "chain-a"));
    symlinkSync("chain-c", join(source, "chain-b"));
    symlinkSync("chain-b", join(source, "chain-d"));
    symlinkSync("down/run", join(source, "a-through"));
    writeFileSync(join(source, "chain-c"), "end");
    linkSync(join(source, "chain-a"), join(source, "chain-e"));
    symlinkSync("round-b", join(source, "round-a"));
    symlinkSync("round-a", join(source, "round-b"));
    chmodSync(source, 0o750);
    return source;
  }

  it("comes back as it was: names, bytes, modes, links", async () => {
    const source = makeSource();
    const { bytes, copy } = await packed(source);
    expect(copy.leftOut.count).toBe(0);
    for (const size of [bytes.length, 997]) {
      rmSync(target, { recursive: true });
      mkdirSync(target);
      const back = await unpacked(bytes, size);
      expect(told(target)).toEqual(told(source));
      expect(back.leftOut.count).toBe(0);
    }
  });

  it("is what GNU tar reads and writes", async () => {
    const source = makeSource();
    execFileSync("tar", ["-x", "-p", "-o", "-f", "-"], {
      cwd: target,
      input: (await packed(source)).bytes,
    });
    expect(told(target)).toEqual(told(source));
    rmSync(target, { recursive: true });
    mkdirSync(target);
    await unpacked(
      execFileSync("tar", ["-c", "-f", "-", "."], { cwd: source, maxBuffer: 64 << 20 }),
    );
    expect(told(target)).toEqual(told(source));
  });

  it("goes without what is no file, which is named", async () => {
    const source = makeSource();
    execFileSync("mkfifo", [join(source, "deep", "pipe")]);
    const { copy } = await packed(source);
    expect(copy.leftOut).toEqual({
      count: 1,
      named: [{ path: "./deep/pipe", reason: "it is a device, a pipe or a socket" }],
    });
    expect(copy.files).toBe(7);
  });

  it("takes no set-user-id bit along", async () => {
    const source = makeSource();
    chmodSync(join(source, "plain"), 0o4755);
    execFileSync("tar", ["-x", "-p", "-o", "-f", "-"], {
      cwd: target,
      input: (await packed(source)).bytes,
    });
    expect(lstatSync(join(target, "plain")).mode & 0o7777).toBe(0o755);
  });

  it("is refused where a name is not UTF-8, and nothing is thrown beside", async () => {
    const source = makeSource();
    writeFileSync(Buffer.concat([Buffer.from(`${source}/b`), Buffer.from([0xff])]), "x");
    await expect(packed(source)).rejects.toMatchObject({
      code: "bad_request",
      message: expect.stringContaining("is not UTF-8") as string,
    });
  });

  it("is written to although a folder in it is not writable", async () => {
    const source = makeSource();
    chmodSync(join(source, "deep"), 0o555);
    await unpacked((await packed(source)).bytes);
    expect(readFileSync(join(target, "deep", "er", "run"), "utf8")).toBe("#!/bin/sh\n");
  });
});

describe("what a guest sends", () => {
  it.each([
    ["/etc/passwd", "/etc/passwd"],
    ["../outside", "../outside"],
    ["deep/er/../../../outside", "deep/er/../../../outside"],
    ["what may pass a link that leads out", "deep/link/../../outside"],
    ["the folder above", ".."],
  ])("leaves a link to %s out", async (_, link) => {
    const copy = await unpacked(
      tar([folder("./"), folder("./deep"), symlink("./link", link), file("./kept", "x")]),
    );
    expect(copy.leftOut.named.map(({ path }) => path)).toEqual(["./link"]);
    expect(toldBelow(target)).toEqual(["deep/ 755", "kept 644 eA=="]);
  });

  it.each([
    ["a file by a path above", [file("./../outside", "x")]],
    ["a file through a link", [symlink("./in", "deep"), folder("./deep"), file("./in/x", "x")]],
    ["a hard link to a file above", [hardlink("./x", "../outside")]],
    ["a hard link through a link", [symlink("./l", "."), hardlink("./x", "./l/../../outside")]],
  ])("refuses %s", async (_, records) => {
    await expect(unpacked(tar([folder("./"), ...records]))).rejects.toThrow();
    expect(readFileSync(join(place, "outside"), "utf8")).toBe("untouched");
    expect(lstatSync(join(place, "outside")).nlink).toBe(1);
  });

  it("gets no device, no pipe, and no program that runs as its owner", async () => {
    const copy = await unpacked(
      tar([
        folder("./"),
        { name: "./null", type: "3" },
        { name: "./pipe", type: "6" },
        file("./su", "x", { mode: 0o4755 }),
      ]),
    );
    expect(copy.leftOut.named.map(({ path }) => path)).toEqual(["./null", "./pipe"]);
    expect(toldBelow(target)).toEqual(["su 755 eA=="]);
  });

  it("leaves out what has a name that is not UTF-8, and says so", async () => {
    const name = Buffer.from([0x62, 0xff]).toString("latin1");
    const copy = await unpacked(
      tar([
        folder("./"),
        file(`./${name}`, "1"),
        folder(`./d${name}`),
        file(`./d${name}/f`, "2"),
        symlink("./link", name),
        file("./kept", "x"),
      ]),
    );
    expect(copy.leftOut.named.map(({ path }) => path)).toEqual([
      "./b\ufffd",
      "./db\ufffd",
      "./db\ufffd/f",
      "./link",
    ]);
    expect(toldBelow(target)).toEqual(["kept 644 eA=="]);
  });

  it("may not go on behind the end of its archive", async () => {
    const whole = tar([folder("./"), file("./x", "x")]);
    const padded = Buffer.concat([whole, Buffer.alloc(512 * 1024)]);
    expect((await unpacked(padded, 65_536)).files).toBe(1);
    rmSync(target, { recursive: true });
    mkdirSync(target);
    const endless = Buffer.concat([whole, Buffer.alloc(4 * 1024 * 1024, 1)]);
    await expect(unpacked(endless, 65_536)).rejects.toThrow("does not end at its end");
  });

  it("names only some of many that were left out", async () => {
    const many = Array.from({ length: 500 }, (_, i) => symlink(`./l${i}`, "/"));
    const { leftOut } = await unpacked(tar([folder("./"), ...many]));
    expect([leftOut.count, leftOut.named.length]).toEqual([500, 20]);
  });

  it.each([
    ["nothing", Buffer.alloc(0)],
    ["one byte", Buffer.from(".")],
    ["text", Buffer.from("tar: not here\n".repeat(100))],
    ["a compressed archive", gzipSync(tar([folder("./"), file("./x", "x")]))],
    [
      "an archive that breaks off",
      tar([folder("./"), file("./x", "x".repeat(9000))]).subarray(0, 4000),
    ],
  ])("is refused where it is %s", async (_, bytes) => {
    await expect(unpacked(bytes, 7)).rejects.toThrow();
  });

  it("never leaves the folder, however it is bent (fuzz)", async () => {
    const seed = Number(process.env["PERDURE_SEED"] ?? 1);
    const random = new Random(seed);
    const whole = tar([
      folder("./"),
      folder("./deep"),
      file("./deep/file", "some bytes"),
      symlink("./deep/up", "../other"),
      file("./other", "x".repeat(1000)),
      hardlink("./same", "./other"),
      symlink("./around", "deep"),
      { name: "./long", data: "long", pax: { path: "./a/b/c", linkpath: "../../outside" } },
    ]);
    let unpackedRounds = 0;
    for (let round = 0; round < 400; round++) {
      const bytes = Buffer.from(whole);
      const bends = 1 + random.below(6);
      for (let bend = 0; bend < bends; bend++) {
        const block = 512 * random.below(bytes.length / 512);
        const at = block + random.below(345);
        bytes[at] = random.below(2) === 0 ? random.below(256) : 0x2e + random.below(2);
        // What else is wrong in a header is looked at only where its checksum is right.
        if (random.below(4) > 0) withChecksum(bytes.subarray(block, block + 512));
      }
      await unpacked(bytes.subarray(0, bytes.length - random.below(512)), 600).then(
        () => unpackedRounds++,
        () => undefined,
      );
      expect(readdirSync(place).sort(), `seed ${seed}, round ${round}`).toEqual([
        "outside",
        "target",
      ]);
      expect(readFileSync(join(place, "outside"), "utf8")).toBe("untouched");
      expect(lstatSync(join(place, "outside")).nlink).toBe(1);
      for (const link of links(target)) {
        const at = relative(target, link);
        expect(leadsInside(link), at).toBe(true);
      }
      rmSync(target, { recursive: true, force: true, maxRetries: 5 });
      mkdirSync(target);
    }
    expect(unpackedRounds).toBeGreaterThan(10);
  });
});

function links(root: string): string[] {
  return readdirSync(root, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isSymbolicLink())
    .map((entry) => join(entry.parentPath, entry.name));
}

/** Where it leads by the file system, or by its words where nothing is there. */
function leadsInside(link: string): boolean {
  const words = normalize(join(dirname(link), readlinkSync(link)));
  let end = words;
  try {
    end = realpathSync(link);
  } catch {
    // nothing
  }
  return `${end}/`.startsWith(`${target}/`);
}
