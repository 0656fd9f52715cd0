/**
 * Archives are hostile: whatever bytes come, reading them ends in an image or in one of the codes that say
 * what is wrong, and what would be unpacked has no path that leads anywhere but down.
 */
import { mkdtemp, open, rm, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { PerdureError } from "@perdure/protocol";
import {
  archive,
  dockerFiles,
  file,
  folder,
  hardlink,
  layer,
  ociFiles,
  symlink,
  tar,
} from "../../../../../test/contract/container-archive.ts";
import type { Compression, TarRecord } from "../../../../../test/contract/container-archive.ts";
import { limitsDefault } from "./archive-error.ts";
import type { Limits } from "./archive-error.ts";
import { openArchive } from "./archive-index.ts";
import { StreamSource } from "./byte-source.ts";
import { imageConfigOf } from "./container-config.ts";
import { planEmission } from "./emit-tree.ts";
import { fitGuest } from "./fit-guest.ts";
import { findImage } from "./manifest.ts";
import { readImage, rereadLayer } from "./read-image.ts";
import { readTar } from "./tar-reader.ts";
import type { TarEntry } from "./tar-reader.ts";

let directory: string;

beforeAll(async () => {
  directory = await mkdtemp(path.join(os.tmpdir(), "perdure-fuzz-"));
});
afterAll(() => rm(directory, { recursive: true }));

const limits: Limits = {
  ...limitsDefault,
  entriesMax: 300,
  unpackedBytesMax: 4 * 1024 * 1024,
  fileBytesMax: 1024 * 1024,
  metadataBytesMax: 64 * 1024,
};
const refusals = new Set(["image_archive_invalid", "too_large", "not_supported", "bad_request"]);

/** Entries that would be unpacked, or the code of the refusal. */
async function outcome(bytes: Buffer): Promise<readonly TarEntry[] | string> {
  const at = path.join(directory, "archive");
  await writeFile(at, bytes);
  await using handle = await open(at, "r");
  try {
    const index = await openArchive(handle, bytes.length, limits);
    const image = await findImage(index, undefined, limits);
    const tree = await readImage(handle, image, limits, () => undefined);
    const { cwd } = imageConfigOf(image.config, "root", true);
    fitGuest(tree, cwd ?? "/");
    const reread = (number: number) => rereadLayer(handle, image, number, limits);
    const emitted = planEmission(tree.root).tar(reread, () => undefined);
    const entries: TarEntry[] = [];
    for await (const { entry } of readTar(new StreamSource(emitted), limitsDefault)) {
      entries.push(entry);
    }
    return entries;
  } catch (error) {
    if (error instanceof PerdureError && refusals.has(error.code)) return error.code;
    throw error;
  }
}

function assertLeadsDown(entries: readonly TarEntry[]): void {
  const seen = new Set<string>();
  const notFolders = new Set<string>();
  for (const { kind, name, link } of entries) {
    const names = name.split("/").filter((part) => part !== "");
    expect(names[0]).toBe(".");
    expect(names).not.toContain("..");
    const at = names.join("/");
    expect(seen.has(at)).toBe(false);
    seen.add(at);
    for (let length = 1; length < names.length; length++) {
      expect(notFolders.has(names.slice(0, length).join("/"))).toBe(false);
    }
    if (kind !== "directory") notFolders.add(at);
    if (kind === "hardlink") expect(seen.has(link)).toBe(true);
  }
}

/** Bytes changed, cut, taken out, doubled. */
const damage = fc.array(
  fc.record({
    kind: fc.constantFrom("set", "cut", "remove", "repeat"),
    at: fc.nat({ max: 1_000_000 }),
    value: fc.nat({ max: 255 }),
    length: fc.nat({ max: 700 }),
  }),
  { minLength: 1, maxLength: 6 },
);
type Damage = typeof damage extends fc.Arbitrary<infer T> ? T : never;

function damaged(bytes: Buffer, steps: Damage): Buffer {
  let result = Buffer.from(bytes);
  for (const { kind, at, value, length } of steps) {
    const place = result.length === 0 ? 0 : at % result.length;
    const piece = result.subarray(place, place + length);
    switch (kind) {
      case "set":
        if (result.length > 0) result[place] = value;
        break;
      case "cut":
        result = result.subarray(0, place);
        break;
      case "remove":
        result = Buffer.concat([result.subarray(0, place), result.subarray(place + length)]);
        break;
      default:
        result = Buffer.concat([result.subarray(0, place), piece, result.subarray(place)]);
    }
  }
  return result;
}

const lower = [
  folder("etc/"),
  file("etc/passwd", "root:x:0:0::/:/bin/sh\n"),
  symlink("lib", "usr/lib"),
  file("lib/a", "x".repeat(700), { pax: { "SCHILY.xattr.user.x": "1", mtime: "5.5" } }),
  hardlink("b", "lib/a"),
  file("hole", "ab", { pax: { "GNU.sparse.size": "9000", "GNU.sparse.map": "0,1,8999,1" } }),
];
const upper = [file(".wh.b"), file("usr/lib/.wh..wh..opq"), file("etc/passwd", "new")];

test("an archive that is damaged anywhere is refused or read, and nothing else", async () => {
  const image = { layers: [layer(lower), layer(upper, "zstd")], config: { WorkingDir: "/w" } };
  const samples = [archive(ociFiles([image])), archive(dockerFiles([image]))];
  for (const sample of samples) assertLeadsDown((await outcome(sample)) as TarEntry[]);
  const counts = { refused: 0, read: 0 };
  await fc.assert(
    fc.asyncProperty(fc.constantFrom(...samples), damage, async (sample, steps) => {
      const result = await outcome(damaged(sample, steps));
      counts[typeof result === "string" ? "refused" : "read"] += 1;
      if (typeof result !== "string") assertLeadsDown(result);
    }),
    { numRuns: 600 },
  );
  expect(counts.refused).toBeGreaterThan(0);
});

test("a layer that is damaged before its digest was taken is refused or read", async () => {
  const plain = tar(lower);
  const counts = { refused: 0, read: 0 };
  await fc.assert(
    fc.asyncProperty(damage, async (steps) => {
      const image = { layers: [layer(damaged(plain, steps), "none"), layer(upper)] };
      const result = await outcome(archive(ociFiles([image])));
      counts[typeof result === "string" ? "refused" : "read"] += 1;
      if (typeof result !== "string") assertLeadsDown(result);
    }),
    { numRuns: 600 },
  );
  expect(counts.refused).toBeGreaterThan(0);
  expect(counts.read).toBeGreaterThan(0);
});

const name = fc.constantFrom("a", "b", "c", ".wh.a", ".wh.b", ".wh..wh..opq", "..", ".", "");
const somePath = fc.array(name, { minLength: 1, maxLength: 4 }).map((names) => names.join("/"));
const target = fc.oneof(
  somePath,
  somePath.map((to) => `/${to}`),
  fc.constantFrom("/proc/self/root", "../../../etc"),
);
const record: fc.Arbitrary<TarRecord> = fc.oneof(
  fc.tuple(somePath, fc.string({ maxLength: 20 })).map(([at, text]) => file(at, text)),
  somePath.map((at) => folder(at)),
  fc.tuple(somePath, target).map(([at, to]) => symlink(at, to)),
  fc.tuple(somePath, target).map(([at, to]) => hardlink(at, to)),
  fc.tuple(somePath, fc.constantFrom("3", "4", "6")).map(([at, type]) => ({ name: at, type })),
);
const layers = fc.array(
  fc.tuple(
    fc.array(record, { maxLength: 8 }),
    fc.constantFrom<Compression>("none", "gzip", "zstd"),
  ),
  { minLength: 1, maxLength: 4 },
);

test("whatever layers say, no path of the result leads anywhere but down", async () => {
  const counts = { refused: 0, read: 0 };
  await fc.assert(
    fc.asyncProperty(layers, async (parts) => {
      const image = { layers: parts.map(([records, how]) => layer(records, how)) };
      const result = await outcome(archive(ociFiles([image])));
      counts[typeof result === "string" ? "refused" : "read"] += 1;
      if (typeof result !== "string") assertLeadsDown(result);
    }),
    { numRuns: 1500 },
  );
  expect(counts.refused).toBeGreaterThan(0);
  expect(counts.read).toBeGreaterThan(0);
});

test("any JSON in place of a document is refused or read", async () => {
  const image = { layers: [layer(upper)] };
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom("index.json", "oci-layout", "manifest.json"),
      fc.jsonValue(),
      fc.boolean(),
      async (document, value, docker) => {
        const files = docker ? dockerFiles([image]) : ociFiles([image]);
        files.set(document, Buffer.from(JSON.stringify(value)));
        await outcome(archive(files));
      },
    ),
    { numRuns: 400 },
  );
});
