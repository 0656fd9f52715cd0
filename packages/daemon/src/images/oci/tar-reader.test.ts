import { Readable } from "node:stream";
import { expect, test } from "vitest";
import {
  file,
  folder,
  hardlink,
  paxData,
  symlink,
  tar,
  tarHeader,
} from "../../../../../test/contract/container-archive.ts";
import type { TarRecord } from "../../../../../test/contract/container-archive.ts";
import { limitsDefault } from "./archive-error.ts";
import type { Limits } from "./archive-error.ts";
import { StreamSource } from "./byte-source.ts";
import { readTar } from "./tar-reader.ts";
import type { TarEntry } from "./tar-reader.ts";

function inPieces(bytes: Buffer, pieceBytes: number): AsyncIterable<Buffer> {
  const starts = Array.from(
    { length: Math.ceil(bytes.length / pieceBytes) },
    (_, at) => at * pieceBytes,
  );
  return Readable.from(starts.map((at) => bytes.subarray(at, at + pieceBytes)));
}

async function read(
  archive: Buffer | readonly TarRecord[],
  { limits = limitsDefault, pieceBytes = 700 }: { limits?: Limits; pieceBytes?: number } = {},
): Promise<(TarEntry & { data: Buffer })[]> {
  const bytes = Buffer.isBuffer(archive) ? archive : tar(archive);
  const found: (TarEntry & { data: Buffer })[] = [];
  for await (const item of readTar(new StreamSource(inPieces(bytes, pieceBytes)), limits)) {
    found.push({ ...item.entry, data: Buffer.concat(await Array.fromAsync(item.content())) });
  }
  return found;
}

test("every kind of entry is read with its facts", async () => {
  const entries = await read([
    folder("a/", { uid: 5, gid: 6, mode: 0o1777 }),
    file("a/f", "hello", { mode: 0o4755, mtime: 1234 }),
    hardlink("a/h", "a/f"),
    symlink("a/s", "../x"),
    { name: "a/p", type: "6" },
    { name: "a/null", type: "3" },
    { name: "a/sda", type: "4" },
    { name: "old/", type: "\0" },
  ]);
  expect(entries.map(({ kind, name }) => [kind, name])).toEqual([
    ["directory", "a/"],
    ["file", "a/f"],
    ["hardlink", "a/h"],
    ["symlink", "a/s"],
    ["fifo", "a/p"],
    ["device", "a/null"],
    ["device", "a/sda"],
    ["directory", "old/"],
  ]);
  expect(entries[0]).toMatchObject({ uid: 5, gid: 6, mode: 0o1777 });
  expect(entries[1]).toMatchObject({ mode: 0o4755, mtimeSeconds: 1234, bytes: 5 });
  expect(entries[1]?.data.toString()).toBe("hello");
  expect(entries[2]?.link).toBe("a/f");
  expect(entries[3]?.link).toBe("../x");
});

test.each([1, 7, 512, 100_000])("pieces of %d bytes change nothing", async (pieceBytes) => {
  const data = Buffer.from(Array.from({ length: 3000 }, (_, at) => at % 251));
  const [one, two] = await read([file("one", data), file("two", "2")], { pieceBytes });
  expect(one?.data.equals(data)).toBe(true);
  expect(two?.data.toString()).toBe("2");
});

test("content that nobody reads is skipped", async () => {
  const source = new StreamSource(inPieces(tar([file("one", "x".repeat(2000)), file("two")]), 300));
  const names: string[] = [];
  for await (const { entry } of readTar(source, limitsDefault)) names.push(entry.name);
  expect(names).toEqual(["one", "two"]);
});

test("long names, targets and numbers come from PAX headers and from GNU's", async () => {
  const long = `d/${"n".repeat(200)}`;
  const gnu = (type: string, value: string): TarRecord => ({
    name: "././@LongLink",
    type,
    data: `${value}\0`,
  });
  const [pax, own, prefixed, big] = await read([
    symlink("short", "short", {
      pax: { path: long, linkpath: long, uid: "3000000", gid: "7", mtime: "99.75" },
    }),
    gnu("L", long),
    gnu("K", `${long}2`),
    symlink("cut", "cut", { magic: "ustar  \0" }),
    file("name", "", { patch: (block) => block.write("pre/fix", 345, "latin1") }),
    file("big", "", {
      patch: (block) => {
        block.fill(0, 108, 116);
        block[108] = 0x80;
        block.writeUInt32BE(4_000_000_000, 112);
      },
    }),
  ]);
  expect(pax).toMatchObject({ name: long, link: long, uid: 3_000_000, gid: 7, mtimeSeconds: 99 });
  expect(own).toMatchObject({ name: long, link: `${long}2` });
  expect(prefixed?.name).toBe("pre/fix/name");
  expect(big?.uid).toBe(4_000_000_000);
});

test("names and extended attributes are bytes, whatever they are", async () => {
  const value = Buffer.from([1, 0, 0, 2, 0x80, 0xff, 10, 0x3d]);
  const [pax, plain] = await read([
    file("x", "", {
      pax: {
        "SCHILY.xattr.security.capability": value,
        "LIBARCHIVE.xattr.user.a%3Db": value.toString("base64"),
      },
    }),
    file("caf\xe9\n", ""),
  ]);
  expect([...(pax?.xattrs ?? [])]).toEqual([
    ["security.capability", value],
    ["user.a=b", value],
  ]);
  expect(plain).toMatchObject({ name: "caf\xe9\n", xattrs: null });
});

test("a global header counts for what follows, an entry's own for that entry", async () => {
  const [one, two] = await read([
    { name: "g", type: "g", data: paxData({ uid: "42", gid: "43" }) },
    file("one", "", { pax: { uid: "1" } }),
    file("two"),
  ]);
  expect(one).toMatchObject({ uid: 1, gid: 43 });
  expect(two).toMatchObject({ uid: 42, gid: 43 });
});

const sparseResult = Buffer.concat([
  Buffer.alloc(10),
  Buffer.from("abc"),
  Buffer.alloc(1000),
  Buffer.from("de"),
  Buffer.alloc(5),
]);

test("a sparse file in the PAX forms has its holes", async () => {
  const map = "2\n10\n3\n1013\n2\n";
  const [one, tenth] = await read([
    file("cut", Buffer.concat([Buffer.from(map.padEnd(512, "\0")), Buffer.from("abcde")]), {
      pax: {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": "dir/one",
        "GNU.sparse.realsize": "1020",
      },
    }),
    file("tenth", "abcde", { pax: { "GNU.sparse.size": "1020", "GNU.sparse.map": "10,3,1013,2" } }),
  ]);
  expect(one).toMatchObject({ name: "dir/one", bytes: 1020 });
  expect(one?.data.equals(sparseResult)).toBe(true);
  expect(tenth?.data.equals(sparseResult)).toBe(true);
});

test("a sparse file in GNU's old form has its holes, also with a continued map", async () => {
  const piece = (at: number, bytes: number): string =>
    `${at.toString(8).padStart(11, "0")}\0${bytes.toString(8).padStart(11, "0")}\0`;
  const short = file("short", "abcde", {
    type: "S",
    magic: "ustar  \0",
    patch: (block) => {
      block.write(piece(10, 3) + piece(1013, 2), 386, "latin1");
      block.write("00000001774\0", 483, "latin1");
    },
  });
  const continued = Buffer.alloc(512);
  continued.write(piece(8, 1) + piece(10, 1), 0, "latin1");
  const long = tarHeader({
    name: "long",
    type: "S",
    size: 6,
    magic: "ustar  \0",
    patch: (block) => {
      block.write(piece(0, 1) + piece(2, 1) + piece(4, 1) + piece(6, 1), 386, "latin1");
      block[482] = 1;
      block.write("00000000014\0", 483, "latin1");
    },
  });
  const data = Buffer.alloc(512);
  data.write("uvwxyz");
  const entries = await read(
    Buffer.concat([tar([short], false), long, continued, data, tar([file("after", "!")])]),
  );
  expect(entries[0]?.data.equals(sparseResult)).toBe(true);
  expect(entries[1]?.data.toString("latin1")).toBe("u\0v\0w\0x\0y\0z\0");
  expect(entries[2]?.data.toString()).toBe("!");
});

const smallLimits: Limits = { ...limitsDefault, fileBytesMax: 100, sparsePiecesMax: 3 };

test.each([
  ["a wrong checksum", tar([file("a")]).fill(1, 0, 1), "image_archive_invalid", "checksum"],
  ["an end within a header", tar([file("a")]).subarray(0, 300), "image_archive_invalid", "middle"],
  [
    "an end within a file",
    tar([file("a", "x".repeat(90))]).subarray(0, 560),
    "image_archive_invalid",
    "middle",
  ],
  ["an unknown type", tar([{ name: "a", type: "Z" }]), "image_archive_invalid", "type"],
  [
    "a size that is no number",
    tar([file("a", "", { patch: (b) => b.write("9x", 124) })]),
    "image_archive_invalid",
    "size",
  ],
  [
    "a negative size",
    tar([file("a", "", { patch: (b) => b.fill(0xff, 124, 136) })]),
    "image_archive_invalid",
    "negative",
  ],
  [
    "a size beyond all numbers",
    tar([file("a", "", { patch: (b) => b.fill(0x7f, 125, 136).fill(0x80, 124, 125) })]),
    "image_archive_invalid",
    "size",
  ],
  [
    "a negative size in PAX",
    tar([file("a", "", { pax: { size: "-1" } })]),
    "image_archive_invalid",
    "negative",
  ],
  [
    "an owner that is none",
    tar([file("a", "", { pax: { uid: "4294967295" } })]),
    "image_archive_invalid",
    "owner",
  ],
  [
    "a PAX header that is cut",
    tar([{ name: "x", type: "x", data: "99 path=a\n" }, file("a")]),
    "image_archive_invalid",
    "malformed",
  ],
  [
    "a PAX header without an end",
    tar([{ name: "x", type: "x", data: "9 path=abc" }, file("a")]),
    "image_archive_invalid",
    "malformed",
  ],
  [
    "a PAX header of no entry",
    tar([{ name: "x", type: "x", data: paxData({ path: "a" }) }]),
    "image_archive_invalid",
    "announced",
  ],
  [
    "headers without end",
    tar(Array.from({ length: 40 }, () => ({ name: "x", type: "L", data: "x" }))),
    "image_archive_invalid",
    "more headers",
  ],
  [
    "a PAX header that is too long",
    tarHeader({ name: "x", type: "x", size: 2 ** 31 }),
    "image_archive_invalid",
    "bytes",
  ],
  ["a file that is too long", tar([file("a", "x".repeat(101))]), "too_large", "fileBytesMax"],
  [
    "a sparse file that is too long",
    tar([file("a", "", { pax: { "GNU.sparse.size": "999999", "GNU.sparse.map": "" } })]),
    "too_large",
    "fileBytesMax",
  ],
  [
    "a sparse map of too many pieces",
    tar([
      file("a", "abcd", { pax: { "GNU.sparse.size": "90", "GNU.sparse.map": "0,1,2,1,4,1,6,1" } }),
    ]),
    "too_large",
    "sparsePiecesMax",
  ],
  [
    "a sparse map that overlaps",
    tar([file("a", "abcd", { pax: { "GNU.sparse.size": "90", "GNU.sparse.map": "5,2,6,2" } })]),
    "image_archive_invalid",
    "map",
  ],
  [
    "a sparse map that ends beyond the file",
    tar([file("a", "abcd", { pax: { "GNU.sparse.size": "9", "GNU.sparse.map": "8,4" } })]),
    "image_archive_invalid",
    "map",
  ],
  [
    "a sparse map for other content",
    tar([file("a", "abcd", { pax: { "GNU.sparse.size": "90", "GNU.sparse.map": "0,3" } })]),
    "image_archive_invalid",
    "map",
  ],
  [
    "a stored sparse map without end",
    tar([
      file("a", "9".repeat(80), {
        pax: { "GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "9" },
      }),
    ]),
    "image_archive_invalid",
    "map",
  ],
])("%s is refused", async (_, archive, code, words) => {
  const reading = read(archive, { limits: smallLimits });
  await expect(reading).rejects.toMatchObject({
    code,
    message: expect.stringContaining(words) as string,
  });
});
