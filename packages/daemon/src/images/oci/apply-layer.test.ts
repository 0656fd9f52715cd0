/** Layers applied to a tree, as the image specification of OCI has it. */
import { expect, test } from "vitest";
import {
  file,
  folder,
  hardlink,
  symlink,
  tar,
} from "../../../../../test/contract/container-archive.ts";
import type { TarRecord } from "../../../../../test/contract/container-archive.ts";
import { applyLayer } from "./apply-layer.ts";
import { limitsDefault } from "./archive-error.ts";
import type { Limits } from "./archive-error.ts";
import { StreamSource } from "./byte-source.ts";
import { readLayer, Tally } from "./layer.ts";
import { readTar } from "./tar-reader.ts";
import { everyNode, Tree } from "./tree.ts";

async function treeOf(
  layers: readonly (readonly TarRecord[])[],
  limits: Limits = limitsDefault,
): Promise<Tree> {
  const tree = new Tree(limits);
  const tally = new Tally(limits);
  for (const [number, records] of layers.entries()) {
    const archive = async function* (): AsyncGenerator<Buffer> {
      yield await Promise.resolve(tar(records));
    };
    const items = readTar(new StreamSource(archive()), limits);
    applyLayer(tree, await readLayer(items, tally), number, limits);
  }
  return tree;
}

/** Paths with what is there: `/` a folder, `→` a link, `#N` a file of layer N. */
async function pathsOf(...layers: readonly TarRecord[][]): Promise<string[]> {
  const tree = await treeOf(layers);
  return [...everyNode(tree.root)].slice(1).map(({ path, node }) => {
    switch (node.kind) {
      case "directory":
        return `${path}/`;
      case "symlink":
        return `${path}→${node.target}`;
      case "file":
        return `${path}#${Buffer.isBuffer(node.content) ? "" : String(node.content.layer)}`;
      default:
        return `${path} (${node.kind})`;
    }
  });
}

test("a later layer adds, replaces, and merges folders", async () => {
  expect(
    await pathsOf(
      [folder("a/"), file("a/one"), file("a/two"), folder("b/"), file("b/x")],
      [folder("a/", { mode: 0o700 }), file("a/two"), file("a/three"), file("b")],
    ),
  ).toEqual(["a/", "a/one#0", "a/three#1", "a/two#1", "b#1"]);
});

test("a folder's facts are those of the last layer that has it", async () => {
  const tree = await treeOf([
    [folder("./", { mode: 0o700 }), folder("a", { mode: 0o755, uid: 1 })],
    [folder("a/", { mode: 0o1777, uid: 2 }), folder("/", { uid: 9 })],
  ]);
  expect(tree.find(["a"])?.facts).toMatchObject({ mode: 0o1777, uid: 2 });
  expect(tree.root.facts).toMatchObject({ mode: 0o755, uid: 9 });
});

test("folders that no layer names are made on the way", async () => {
  expect(await pathsOf([file("./x/y/z")])).toEqual(["x/", "x/y/", "x/y/z#0"]);
});

test("a whiteout hides a file, a folder with all below, and a link but not its target", async () => {
  expect(
    await pathsOf(
      [file("f"), file("d/e/g"), file("t"), symlink("l", "t")],
      [file(".wh.f"), file(".wh.d"), file(".wh.l"), file(".wh.never-there"), file("no/.wh.x")],
    ),
  ).toEqual(["t#0"]);
});

test("a whiteout hides nothing of its own layer, wherever it stands there", async () => {
  const lower = [file("d/old"), file("f")];
  const own = [file("d/new"), file("f")];
  const whiteouts = [file(".wh.d"), file(".wh.f")];
  const expected = ["d/", "d/new#1", "f#1"];
  expect(await pathsOf(lower, [...whiteouts, ...own])).toEqual(expected);
  expect(await pathsOf(lower, [...own, ...whiteouts])).toEqual(expected);
});

test("an opaque whiteout hides all of the lower layers in its folder, and only there", async () => {
  const lower = [folder("d/", { mode: 0o711 }), file("d/a"), file("d/sub/b"), file("c")];
  const own = [file("d/sub/new"), file("d/z")];
  const opaque = [file("d/.wh..wh..opq")];
  const expected = ["c#0", "d/", "d/sub/", "d/sub/new#1", "d/z#1"];
  expect(await pathsOf(lower, [...own, ...opaque])).toEqual(expected);
  expect(await pathsOf(lower, [...opaque, ...own])).toEqual(expected);
  const tree = await treeOf([lower, opaque]);
  expect(tree.find(["d"])?.facts.mode).toBe(0o711);
});

test("an opaque whiteout in the root hides everything below", async () => {
  expect(await pathsOf([file("a"), file("b/c")], [file(".wh..wh..opq"), file("d")])).toEqual([
    "d#1",
  ]);
});

test("what is hidden can come again in a later layer", async () => {
  expect(await pathsOf([file("d/a")], [file(".wh.d")], [file("d/b")])).toEqual(["d/", "d/b#2"]);
});

test("a whiteout reaches through links, but not through one that its layer replaces", async () => {
  const lower = [file("usr/lib/a"), file("usr/lib/b"), symlink("lib", "usr/lib")];
  expect(await pathsOf(lower, [file("lib/.wh.a")])).toEqual([
    "lib→usr/lib",
    "usr/",
    "usr/lib/",
    "usr/lib/b#0",
  ]);
  expect(await pathsOf(lower, [folder("lib/"), file("lib/.wh..wh..opq"), file("lib/c")])).toEqual([
    "lib/",
    "lib/c#1",
    "usr/",
    "usr/lib/",
    "usr/lib/a#0",
    "usr/lib/b#0",
  ]);
});

test("AUFS's own files are no files of the image", async () => {
  expect(
    await pathsOf([
      file(".wh..wh.aufs"),
      folder(".wh..wh.plnk/"),
      file(".wh..wh.plnk/12.3"),
      file("a"),
    ]),
  ).toEqual(["a#0"]);
});

test("links in the way are followed inside the image", async () => {
  expect(
    await pathsOf(
      [symlink("lib", "usr/lib"), symlink("up", "../../../deep"), symlink("abs", "/opt/x")],
      [file("lib/a"), file("up/b"), file("abs/c")],
    ),
  ).toEqual([
    ...["abs→/opt/x", "deep/", "deep/b#1", "lib→usr/lib", "opt/", "opt/x/", "opt/x/c#1"],
    ...["up→../../../deep", "usr/", "usr/lib/", "usr/lib/a#1"],
  ]);
});

test("a link that a layer names is replaced, not followed", async () => {
  expect(await pathsOf([file("t"), symlink("l", "t")], [file("l")])).toEqual(["l#1", "t#0"]);
  expect(await pathsOf([folder("t"), symlink("l", "t")], [folder("l/")])).toEqual(["l/", "t/"]);
});

test("hard links are one file, over layers too, until one of them is replaced", async () => {
  const tree = await treeOf([
    [file("a", "x"), hardlink("b", "a"), hardlink("d/c", "/a")],
    [hardlink("e", "./b"), file("b", "y"), file(".wh.a")],
  ]);
  expect(tree.find(["a"])).toBeNull();
  expect(tree.find(["e"])).toBe(tree.find(["d", "c"]));
  expect(tree.find(["b"])).not.toBe(tree.find(["e"]));
});

test("a hard link to a symbolic link is that link", async () => {
  expect(await pathsOf([symlink("s", "nowhere"), hardlink("h", "s")])).toEqual([
    "h→nowhere",
    "s→nowhere",
  ]);
});

test("a device is known to later layers", async () => {
  const device: TarRecord = { name: "dev/null", type: "3" };
  expect(await pathsOf([device])).toEqual(["dev/", "dev/null (device)"]);
  expect(await pathsOf([device], [file("dev/.wh.null")])).toEqual(["dev/"]);
  expect(await pathsOf([file("dev/null")], [device])).toEqual(["dev/", "dev/null (device)"]);
});

test("a folder that is named twice has the facts of the second", async () => {
  const tree = await treeOf([
    [folder("a/", { mode: 0o700 }), file("a/f"), folder("a/", { mode: 0o711 })],
  ]);
  expect(tree.find(["a"])?.facts.mode).toBe(0o711);
  expect(tree.find(["a", "f"])?.kind).toBe("file");
});

test("times that ext4 cannot keep are moved to the nearest that it can", async () => {
  const tree = await treeOf([
    [
      file("old", "", { pax: { mtime: "-62135596800" } }),
      file("new", "", { pax: { mtime: "99999999999" } }),
    ],
  ]);
  expect(tree.find(["old"])?.facts.mtimeSeconds).toBe(0);
  expect(tree.find(["new"])?.facts.mtimeSeconds).toBe(2 ** 31 - 1);
});

test.each<[string, TarRecord[][], string]>([
  ["a path that leads upwards", [[file("a/../../etc/passwd")]], "upwards"],
  ["a path with a NUL", [[file("x", "", { pax: { path: "a\0b" } })]], "NUL"],
  ["a file without a name", [[file("./", "", { type: "0" })]], "name"],
  ["a link to nothing", [[symlink("l", "")]], "nowhere"],
  ["a path through a file", [[file("a")], [file("a/b")]], "in the way"],
  ["a path through a circle of links", [[symlink("etc", "/etc")], [file("etc/passwd")]], "circle"],
  [
    "a whiteout through a circle of links",
    [[symlink("a", "b"), symlink("b", "a")], [file("a/.wh.x")]],
    "circle",
  ],
  ["a hard link to what is not there", [[hardlink("a", "b")]], "not there"],
  [
    "a hard link to what the layer hides",
    [[file("b")], [file(".wh.b"), hardlink("a", "b")]],
    "not there",
  ],
  ["hard links in a circle", [[hardlink("a", "b"), hardlink("b", "a")]], "not there"],
  ["a hard link to itself", [[hardlink("a", "a")]], "not there"],
  ["a hard link to a folder", [[folder("d"), hardlink("a", "d")]], "directory"],
  ["a hard link upwards", [[hardlink("a", "../../etc/passwd")]], "upwards"],
  ["a file twice", [[file("a"), file("./a")]], "twice"],
  ["a file after a hard link of its name", [[file("b"), hardlink("a", "b"), file("a")]], "twice"],
  ["a file in place of the layer's own folder", [[file("a/b"), file("a")]], "twice"],
  [
    "a file in place of a lower folder that the layer filled",
    [[folder("a/x")], [file("a/x/b"), file("a")]],
    "twice",
  ],
  ["a folder in place of the layer's own link", [[symlink("etc", "/tmp"), folder("etc")]], "twice"],
  ["a whiteout of nothing", [[file("a/.wh.")]], "names no file"],
  ["a whiteout of the folder itself", [[file("a/.wh..")]], "names no file"],
  ["a whiteout of the folder above", [[file("a/.wh...")]], "names no file"],
  ["a file below a whiteout", [[file(".wh.a/b")]], "below a whiteout"],
])("%s is refused", async (_, layers, words) => {
  await expect(treeOf(layers)).rejects.toMatchObject({
    code: "image_archive_invalid",
    message: expect.stringContaining(words) as string,
  });
});

const deepLinks = [
  [file(`${"d/".repeat(40)}f`), symlink("l", "d/".repeat(40))],
  [file(`l/${"e/".repeat(40)}x`)],
];

test.each<[string, TarRecord[][], Partial<Limits>]>([
  ["entries", [[file("a"), file("b")], [file("c")]], { entriesMax: 2 }],
  ["entries that are made on the way", [[file("a/b/c/d")]], { entriesMax: 3 }],
  ["metadata", [[file("abc")], [symlink("d", "efgh")]], { metadataBytesMax: 7 }],
  ["content", [[file("a", "xxx")], [file("a", "xxx")]], { unpackedBytesMax: 5 }],
  ["a name", [[file("abcdef")]], { nameBytesMax: 5 }],
  ["a path", [[file("a/b/c")]], { pathBytesMax: 4 }],
  ["a path through links", deepLinks, { pathBytesMax: 100 }],
  ["a link's target", [[symlink("a", "123456")]], { pathBytesMax: 5 }],
  [
    "attributes",
    [[file("a", "", { pax: { "SCHILY.xattr.user.x": "12345" } })]],
    { xattrBytesMax: 10 },
  ],
])("the bound of %s has a name", async (_, layers, limits) => {
  await expect(treeOf(layers, { ...limitsDefault, ...limits })).rejects.toMatchObject({
    code: "too_large",
    details: { limit: Object.keys(limits)[0] },
  });
});
