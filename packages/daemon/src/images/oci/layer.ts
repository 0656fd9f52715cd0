/**
 * One layer as it was read: its entries without their content, and the whiteouts apart. Nothing is
 * applied before the whole layer was read and its digest found right.
 *
 * Names are checked here, once: after this they are lists of names that lead down only.
 */
import { invalid, shown, tooLarge } from "./archive-error.ts";
import type { Limits } from "./archive-error.ts";
import type { TarEntry, TarItem } from "./tar-reader.ts";

export interface LayerEntry {
  readonly entry: TarEntry;
  /** Empty for the root. */
  readonly names: readonly string[];
  /** Place in the layer, for reading its content later. */
  readonly index: number;
}

/** `.wh.NAME` hides NAME of the layers below; `.wh..wh..opq` hides all that its folder has of them. */
export interface Whiteout {
  readonly folder: readonly string[];
  /** Null: everything. */
  readonly name: string | null;
}

export interface Layer {
  readonly entries: readonly LayerEntry[];
  readonly whiteouts: readonly Whiteout[];
}

/** Sums over all layers, against the bounds. */
export class Tally {
  readonly limits: Limits;
  #entries = 0;
  #metadataBytes = 0;
  #contentBytes = 0;

  constructor(limits: Limits) {
    this.limits = limits;
  }

  /** @throws `too_large` */
  add(entry: TarEntry): void {
    const { limits } = this;
    let xattrBytes = 0;
    for (const [name, value] of entry.xattrs ?? []) xattrBytes += name.length + value.length;
    if (xattrBytes > limits.xattrBytesMax) {
      const what = `the bytes of the extended attributes of ${shown(entry.name)}`;
      throw tooLarge(what, "xattrBytesMax", limits);
    }
    this.#entries += 1;
    this.#metadataBytes += entry.name.length + entry.link.length + xattrBytes;
    this.#contentBytes += entry.bytes;
    if (this.#entries > limits.entriesMax) {
      throw tooLarge("the entries of its layers", "entriesMax", limits);
    }
    if (this.#metadataBytes > limits.metadataBytesMax) {
      throw tooLarge("the bytes of names and attributes", "metadataBytesMax", limits);
    }
    if (this.#contentBytes > limits.unpackedBytesMax) {
      throw tooLarge("the bytes of its layers", "unpackedBytesMax", limits);
    }
  }
}

const whiteoutPrefix = ".wh.";
/** Names that AUFS kept for itself; only one of them says something about other files. */
const ownPrefix = ".wh..wh.";
const opaque = ".wh..wh..opq";

export async function readLayer(items: AsyncIterable<TarItem>, tally: Tally): Promise<Layer> {
  const entries: LayerEntry[] = [];
  const whiteouts: Whiteout[] = [];
  let index = -1;
  for await (const { entry } of items) {
    index += 1;
    tally.add(entry);
    const names = namesIn(entry, tally.limits);
    const last = names.at(-1) ?? "";
    // Below a folder with such a name lies nothing but AUFS's own.
    if (names.slice(0, -1).some((name) => name.startsWith(ownPrefix))) continue;
    if (names.some((name) => name.startsWith(whiteoutPrefix) && name !== last)) {
      throw invalid(`entry ${shown(entry.name)} lies below a whiteout`);
    }
    if (!last.startsWith(whiteoutPrefix)) entries.push({ entry, names, index });
    else if (last === opaque) whiteouts.push({ folder: names.slice(0, -1), name: null });
    else if (!last.startsWith(ownPrefix)) whiteouts.push(whiteoutOf(entry, names, last));
  }
  return { entries, whiteouts };
}

function whiteoutOf(entry: TarEntry, names: readonly string[], last: string): Whiteout {
  const name = last.slice(whiteoutPrefix.length);
  if (name === "" || name === "." || name === "..") {
    throw invalid(`whiteout ${shown(entry.name)} names no file`);
  }
  return { folder: names.slice(0, -1), name };
}

/** A leading slash is the image's root, as for every container tool. */
function namesIn({ name, kind, link }: TarEntry, limits: Limits): string[] {
  const names = safeNames(name, limits);
  if (names.length === 0 && kind !== "directory") throw invalid(`entry ${shown(name)} has no name`);
  if (kind === "symlink") {
    if (link === "" || link.includes("\0")) throw invalid(`link ${shown(name)} leads nowhere`);
    if (link.length > limits.pathBytesMax) {
      throw tooLarge(`the bytes that link ${shown(name)} holds`, "pathBytesMax", limits);
    }
  }
  return names;
}

/** @throws where the path could lead anywhere but down */
export function safeNames(path: string, limits: Limits): string[] {
  if (path.length > limits.pathBytesMax) {
    throw tooLarge(`the bytes of the path ${shown(path)}`, "pathBytesMax", limits);
  }
  if (path.includes("\0")) throw invalid(`the path ${shown(path)} holds a NUL character`);
  const names = path.split("/").filter((name) => name !== "" && name !== ".");
  if (names.includes("..")) throw invalid(`the path ${shown(path)} leads upwards`);
  const long = names.find((name) => name.length > limits.nameBytesMax);
  if (long === undefined) return names;
  throw tooLarge(`the bytes of the name ${shown(long)}`, "nameBytesMax", limits);
}
