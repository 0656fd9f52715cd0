/**
 * Applies a layer to the tree, as the image specification of OCI has it ("Applying Changesets"):
 *
 * - Whiteouts first, and only to what the layers below made: what the layer itself brings beside or below
 *   a whiteout stays, wherever in the layer the two stand.
 * - A directory over a directory changes its facts and keeps its children; anything else replaces what is
 *   there.
 * - A hard link joins what is there at that moment, from this layer or one below.
 * - A path that a layer names twice is refused unless both are directories.
 */
import { invalid, shown } from "./archive-error.ts";
import type { Limits } from "./archive-error.ts";
import type { Layer, LayerEntry, Whiteout } from "./layer.ts";
import { safeNames } from "./layer.ts";
import type { Directory, Facts, Node, Place, Tree } from "./tree.ts";

/** What a layer has put where, so that a second entry of the same name is noticed. */
type Put = Map<Directory, Set<string>>;

/** @param number of the layer, lowest 0. @throws PerdureError `image_archive_invalid`, `too_large` */
export function applyLayer(tree: Tree, layer: Layer, number: number, limits: Limits): void {
  if (layer.whiteouts.length > 0) {
    const folders = layer.entries.filter(({ entry }) => entry.kind === "directory");
    const replaced = new Set(folders.map(({ names }) => names.join("/")));
    for (const whiteout of layer.whiteouts) hide(tree, whiteout, replaced);
  }
  const put: Put = new Map();
  for (const item of layer.entries) place(tree, item, number, put, limits);
}

/** A link that the layer replaces by a folder leads to nothing that the whiteout is about. */
function hide(tree: Tree, { folder, name }: Whiteout, replaced: ReadonlySet<string>): void {
  const isReplaced = (taken: number): boolean => replaced.has(folder.slice(0, taken).join("/"));
  const directory = tree.findDirectory(folder, isReplaced);
  if (name === null) directory?.children.clear();
  else directory?.children.delete(name);
}

function place(tree: Tree, item: LayerEntry, number: number, put: Put, limits: Limits): void {
  const { entry, names } = item;
  const name = names.at(-1);
  if (name === undefined) {
    tree.root.facts = factsOf(entry);
    return;
  }
  const parent = tree.makeDirectory(names.slice(0, -1));
  const { children } = parent.directory;
  const there = children.get(name);
  if (entry.kind === "directory" && there?.kind === "directory") {
    there.facts = factsOf(entry);
  } else {
    if (there !== undefined) assertReplaceable(item, parent, there, put);
    tree.count(parent, name);
    children.set(name, entry.kind === "hardlink" ? linked(tree, item, limits) : made(item, number));
  }
  const known = put.get(parent.directory);
  if (known === undefined) put.set(parent.directory, new Set([name]));
  else known.add(name);
}

/** What the same layer has put there may not be lost without a word. */
function assertReplaceable(
  { entry, names }: LayerEntry,
  parent: Place,
  there: Node,
  put: Put,
): void {
  const name = names.at(-1) ?? "";
  if (put.get(parent.directory)?.has(name) === true || holdsPut(there, put)) {
    throw invalid(`a layer has ${shown(entry.name)} twice`);
  }
}

function holdsPut(node: Node, put: Put): boolean {
  if (node.kind !== "directory") return false;
  const todo: Directory[] = [node];
  for (let directory = todo.pop(); directory !== undefined; directory = todo.pop()) {
    if (put.has(directory)) return true;
    for (const child of directory.children.values())
      if (child.kind === "directory") todo.push(child);
  }
  return false;
}

function linked(tree: Tree, { entry }: LayerEntry, limits: Limits): Node {
  const target = tree.find(safeNames(entry.link, limits));
  if (target !== null && target.kind !== "directory") return target;
  const why = target === null ? "is not there" : "is a directory";
  throw invalid(`hard link ${shown(entry.name)} leads to ${shown(entry.link)}, which ${why}`);
}

function made({ entry, index }: LayerEntry, layer: number): Node {
  const facts = factsOf(entry);
  switch (entry.kind) {
    case "directory":
      return { kind: "directory", facts, children: new Map() };
    case "file":
      return { kind: "file", facts, bytes: entry.bytes, content: { layer, entry: index } };
    case "symlink":
      return { kind: "symlink", facts, target: entry.link };
    case "fifo":
    case "device":
      return { kind: entry.kind, facts };
    case "hardlink":
      throw new Error("A hard link is no node of its own");
  }
}

/** What ext4 keeps of a time, as this build of mke2fs writes it. Go's zero time is in the year 1. */
const secondsMax = 2 ** 31 - 1;

function factsOf({ mode, uid, gid, mtimeSeconds, xattrs }: LayerEntry["entry"]): Facts {
  return { mode, uid, gid, mtimeSeconds: Math.min(Math.max(mtimeSeconds, 0), secondsMax), xattrs };
}
