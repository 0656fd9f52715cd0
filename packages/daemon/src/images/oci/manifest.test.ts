/** Which image an archive holds, and how one that is wrong is refused. */
import { mkdtemp, open, rm, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, expect, test } from "vitest";
import {
  archive,
  configurationOf,
  dockerFiles,
  file,
  folder,
  hardlink,
  json,
  layer,
  ociFiles,
  sha256,
  symlink,
  tar,
} from "../../../../../test/contract/container-archive.ts";
import type { ImageSample, TarRecord } from "../../../../../test/contract/container-archive.ts";
import { limitsDefault } from "./archive-error.ts";
import type { Limits } from "./archive-error.ts";
import { openArchive } from "./archive-index.ts";
import { findImage } from "./manifest.ts";
import type { FoundImage } from "./manifest.ts";
import { readImage } from "./read-image.ts";

let directory: string;

beforeAll(async () => {
  directory = await mkdtemp(path.join(os.tmpdir(), "perdure-manifest-"));
});
afterAll(() => rm(directory, { recursive: true }));

const layers = [layer([file("a", "one")]), layer([file("b", "two")], "zstd")];
const image: ImageSample = { layers };
const arm: ImageSample = { layers, architecture: "arm64" };
const armLayer = { platform: { os: "linux", architecture: "arm64", variant: "v8" } };
const amdLayer = { platform: { os: "linux", architecture: "amd64" } };

async function find(
  bytes: Buffer | ReadonlyMap<string, Buffer>,
  { reference, limits = limitsDefault }: { reference?: string; limits?: Limits } = {},
): Promise<FoundImage> {
  const at = path.join(directory, "archive");
  const data = Buffer.isBuffer(bytes) ? bytes : archive(bytes);
  await writeFile(at, data);
  await using handle = await open(at, "r");
  const found = await findImage(await openArchive(handle, data.length, limits), reference, limits);
  await readImage(handle, found, limits, () => undefined);
  return found;
}

test("an image in an OCI layout is found, also below an index", async () => {
  for (const nested of [false, true]) {
    const found = await find(ociFiles([image], nested));
    expect(found.digest.hex).toBe(sha256(configurationOf(image)));
    expect(found.layers.map(({ unpacked }) => `sha256:${unpacked.hex}`)).toEqual(
      layers.map(({ diffId }) => diffId),
    );
  }
});

test("an image of docker save is found, in the old form and in that of an OCI layout", async () => {
  const old = dockerFiles([{ ...image, tags: ["app:1"] }]);
  expect(await find(old)).toMatchObject({ reference: "app:1", layers: { length: 2 } });
  const both = ociFiles([image]);
  const [{ digest } = { digest: "" }] = (
    JSON.parse(both.get("index.json")?.toString() ?? "") as { manifests: { digest: string }[] }
  ).manifests;
  expect(digest).not.toBe("");
  both.set(
    "manifest.json",
    json([
      { Config: `blobs/sha256/${sha256(configurationOf(image))}`, RepoTags: ["app:1"], Layers: [] },
    ]),
  );
  expect((await find(both)).layers).toHaveLength(2);
  both.delete("index.json");
  const blobs = layers.map(({ blob }) => `blobs/sha256/${sha256(blob)}`);
  both.set(
    "manifest.json",
    json([
      {
        Config: `blobs/sha256/${sha256(configurationOf(image))}`,
        RepoTags: ["app:1"],
        Layers: blobs,
      },
    ]),
  );
  expect(await find(both)).toMatchObject({ reference: "app:1", layers: { length: 2 } });
});

test("links between the layers of docker save are followed in the archive", async () => {
  const twice: ImageSample = {
    layers: [layers[0], layers[0]].filter((each) => each !== undefined),
  };
  const files = dockerFiles([twice]);
  const [name = ""] = [...files.keys()].filter((each) => each.endsWith("/layer.tar"));
  const manifest = JSON.parse(files.get("manifest.json")?.toString() ?? "") as {
    Layers: string[];
  }[];
  const [entry] = manifest;
  if (entry === undefined) throw new Error("There is no manifest");
  entry.Layers = [name, "second/layer.tar"];
  files.set("manifest.json", json(manifest));
  const records = (link: TarRecord): TarRecord[] => [
    ...[...files].map(([at, data]) => file(at, data)),
    folder("second/"),
    link,
  ];
  for (const link of [
    symlink("second/layer.tar", `../${name}`),
    hardlink("second/layer.tar", name),
  ]) {
    expect((await find(tar(records(link)))).layers).toHaveLength(2);
  }
  await expect(find(tar(records(symlink("second/layer.tar", "layer.tar"))))).rejects.toMatchObject({
    code: "image_archive_invalid",
    message: expect.stringContaining("circle") as string,
  });
  await expect(
    find(tar(records(symlink("second/layer.tar", "/etc/passwd")))),
  ).rejects.toMatchObject({
    code: "image_archive_invalid",
  });
});

test("of several platforms the one that runs here is taken", async () => {
  const files = ociFiles([
    { ...arm, descriptor: armLayer },
    { ...image, descriptor: amdLayer },
    {
      layers: [],
      descriptor: {
        platform: { os: "unknown", architecture: "unknown" },
        annotations: { "vnd.docker.reference.type": "attestation-manifest" },
      },
    },
  ]);
  expect((await find(files)).config.architecture).toBe("amd64");
});

test("of several levels of amd64 the one that runs everywhere is taken", async () => {
  const high = { ...image, configuration: { variant: "v3" } };
  const files = ociFiles([
    { ...high, descriptor: { platform: { ...amdLayer.platform, variant: "v3" } } },
    { ...image, descriptor: amdLayer },
  ]);
  expect((await find(files)).config.variant).toBeUndefined();
});

test("other platforms are refused by their names, whether an index or a configuration tells them", async () => {
  await expect(find(ociFiles([{ ...arm, descriptor: armLayer }]))).rejects.toMatchObject({
    code: "not_supported",
    message: expect.stringContaining("linux/arm64/v8") as string,
  });
  for (const files of [ociFiles([arm]), dockerFiles([arm])]) {
    await expect(find(files)).rejects.toMatchObject({
      code: "not_supported",
      message: expect.stringContaining("linux/arm64") as string,
    });
  }
  await expect(find(ociFiles([{ ...image, os: "windows" }]))).rejects.toMatchObject({
    code: "not_supported",
    message: expect.stringContaining("windows/amd64") as string,
  });
});

test("of several images one is chosen by its name", async () => {
  const other: ImageSample = { layers: layers.slice(0, 1) };
  const named = (name: string) => ({
    descriptor: { annotations: { "org.opencontainers.image.ref.name": name } },
  });
  const oci = ociFiles([
    { ...image, ...named("one") },
    { ...other, ...named("two") },
  ]);
  const docker = dockerFiles([
    { ...image, tags: ["one"] },
    { ...other, tags: ["two", "three"] },
  ]);
  for (const files of [oci, docker]) {
    await expect(find(files)).rejects.toMatchObject({
      code: "bad_request",
      message: expect.stringContaining('"one", "two"') as string,
    });
    expect(await find(files, { reference: "two" })).toMatchObject({
      layers: { length: 1 },
      reference: "two",
    });
    await expect(find(files, { reference: "four" })).rejects.toMatchObject({
      code: "image_archive_invalid",
    });
  }
  expect((await find(docker, { reference: "three" })).layers).toHaveLength(1);
});

/** An OCI layout with one of its blobs changed, under the name that it had. */
function withBlob(
  which: (data: string) => boolean,
  change: (data: Buffer) => Buffer,
): Map<string, Buffer> {
  const files = ociFiles([image]);
  for (const [name, data] of files) {
    if (name.startsWith("blobs/") && which(data.toString("latin1"))) files.set(name, change(data));
  }
  return files;
}

const isManifest = (data: string): boolean => data.includes('"layers":[{');
const isConfig = (data: string): boolean => data.includes("diff_ids");
const isLayer = (data: string): boolean => data.startsWith("\x1f\x8b");
const flipped = (data: Buffer): Buffer => {
  const copy = Buffer.from(data);
  copy[copy.length >> 1] = (copy[copy.length >> 1] ?? 0) ^ 1;
  return copy;
};

test.each<[string, Map<string, Buffer> | Buffer, string]>([
  ["a manifest that was changed", withBlob(isManifest, flipped), "digest"],
  [
    "a manifest of another size",
    withBlob(isManifest, (data) => Buffer.concat([data, data])),
    "bytes",
  ],
  ["a configuration that was changed", withBlob(isConfig, flipped), "digest"],
  ["a layer of another size", withBlob(isLayer, (data) => data.subarray(0, 40)), "bytes"],
  [
    "a layer that was changed",
    withBlob(isLayer, (data) =>
      Buffer.from(gzipSync(tar([file("a", "One")])).subarray(0, data.length)),
    ),
    "",
  ],
  [
    "a layer with a wrong diff id",
    ociFiles([{ layers: [{ ...layer([file("a")]), diffId: `sha256:${"0".repeat(64)}` }] }]),
    "uncompressed",
  ],
  [
    "a diff id that is none",
    ociFiles([{ layers: [{ ...layer([file("a")]), diffId: "sha256:xyz" }] }]),
    "malformed",
  ],
  [
    "a digest of another kind",
    ociFiles([
      { layers: [{ ...layer([file("a")]), diffId: "md5:d41d8cd98f00b204e9800998ecf8427e" }] },
    ]),
    "sha256",
  ],
  [
    "fewer diff ids than layers",
    ociFiles([{ ...image, configuration: { rootfs: { type: "layers", diff_ids: [] } } }]),
    "names 0",
  ],
  [
    "a configuration without a root file system",
    ociFiles([{ ...image, configuration: { rootfs: undefined } }]),
    "rootfs",
  ],
  [
    "a layer that is missing",
    new Map([...ociFiles([image])].filter(([, data]) => !isLayer(data.toString("latin1")))),
    "missing",
  ],
  [
    "a layout of another version",
    new Map([...ociFiles([image]), ["oci-layout", json({ imageLayoutVersion: "2.0" })]]),
    "oci-layout",
  ],
  [
    "a layout without its mark",
    new Map([...ociFiles([image])].filter(([name]) => name !== "oci-layout")),
    "oci-layout",
  ],
  [
    "an index that is no JSON",
    new Map([...ociFiles([image]), ["index.json", Buffer.from("{")]]),
    "JSON",
  ],
  [
    "an index of nothing",
    new Map([...ociFiles([image]), ["index.json", json({ manifests: [] })]]),
    "no image",
  ],
  ["neither index nor manifest", archive(new Map([["x", Buffer.from("y")]])), "neither"],
  [
    "a docker manifest with a path that leads upwards",
    new Map([
      ...dockerFiles([image]),
      ["manifest.json", json([{ Config: "../x.json", Layers: [] }])],
    ]),
    "no configuration",
  ],
  [
    "a docker configuration that was changed",
    new Map(
      [...dockerFiles([image])].map(([name, data]) => [
        name,
        isConfig(data.toString()) ? flipped(data) : data,
      ]),
    ),
    "digest",
  ],
  [
    "a docker layer that was changed",
    new Map(
      [...dockerFiles([image])].map(([name, data]) => [
        name,
        name.endsWith("layer.tar") ? gzipSync(tar([file("z")])) : data,
      ]),
    ),
    "digest",
  ],
  ["an archive with an absolute name", tar([file("/oci-layout", "x")]), "absolute"],
  ["an archive that leads upwards", tar([file("../oci-layout", "x")]), "upwards"],
  [
    "an archive with a name twice",
    tar([file("index.json", "{}"), file("./index.json", "{}")]),
    "twice",
  ],
  ["an archive with a device", tar([{ name: "index.json", type: "3" }]), "device"],
  [
    "a sparse archive",
    tar([file("index.json", "ab", { pax: { "GNU.sparse.size": "9", "GNU.sparse.map": "0,2" } })]),
    "sparse",
  ],
])("%s is refused", async (_, files, words) => {
  await expect(find(files)).rejects.toMatchObject({
    code: "image_archive_invalid",
    message: expect.stringContaining(words) as string,
  });
});

test("an index that holds itself is refused", async () => {
  // A digest cannot be in what it is a digest of; a chain of indexes can be long.
  let files = ociFiles([image], true);
  for (let depth = 0; depth < 6; depth++) {
    const index = files.get("index.json") ?? Buffer.alloc(0);
    const mediaType = "application/vnd.oci.image.index.v1+json";
    files.set(`blobs/sha256/${sha256(index)}`, index);
    const manifests = [{ mediaType, digest: `sha256:${sha256(index)}`, size: index.length }];
    files = new Map([...files, ["index.json", json({ schemaVersion: 2, manifests })]]);
  }
  await expect(find(files)).rejects.toMatchObject({
    code: "image_archive_invalid",
    message: expect.stringContaining("each other") as string,
  });
});

test.each<[string, ReadonlyMap<string, Buffer>, Partial<Limits>]>([
  ["layers", ociFiles([image]), { layersMax: 1 }],
  ["files of the archive", ociFiles([image]), { archiveEntriesMax: 3 }],
  ["JSON", ociFiles([image]), { jsonBytesMax: 50 }],
  ["unpacked bytes, over all layers", ociFiles([image]), { unpackedBytesMax: 3000 }],
])("the bound of %s has a name", async (_, files, limits) => {
  await expect(find(files, { limits: { ...limitsDefault, ...limits } })).rejects.toMatchObject({
    code: "too_large",
    details: { limit: Object.keys(limits)[0] },
  });
});

test("a layer that unpacks to much more than it is ends at the bound", async () => {
  const bomb = layer(
    Buffer.concat([
      tar([file("a", Buffer.alloc(4 * 1024 * 1024))]),
      Buffer.alloc(60 * 1024 * 1024),
    ]),
  );
  const limits = { ...limitsDefault, unpackedBytesMax: 8 * 1024 * 1024 };
  await expect(find(ociFiles([{ layers: [bomb] }]), { limits })).rejects.toMatchObject({
    code: "too_large",
    details: { limit: "unpackedBytesMax" },
  });
});

test.each([
  ["xz", Buffer.from("fd377a585a000004", "hex")],
  ["bzip2", Buffer.from("BZh91AY&SY")],
])("a layer compressed with %s is refused by that name", async (name, blob) => {
  const sample = { ...layer([file("a")]), blob };
  await expect(find(ociFiles([{ layers: [sample] }]))).rejects.toMatchObject({
    code: "not_supported",
    message: expect.stringContaining(name) as string,
  });
});

test("a layer that ends early is refused", async () => {
  for (const compression of ["gzip", "zstd"] as const) {
    const whole = layer(
      [file("a", Buffer.from(Array.from({ length: 5000 }, (_, at) => (at * 7919) % 256)))],
      compression,
    );
    const cut = { ...whole, blob: whole.blob.subarray(0, whole.blob.length - 9) };
    await expect(find(ociFiles([{ layers: [cut] }]))).rejects.toMatchObject({
      code: "image_archive_invalid",
    });
  }
});
