/**
 * The tree as one tar archive for GNU tar, in an order that leaves nothing to follow: folders, then files
 * as the layers have them, then further names of files, then links. No entry lies below a link, none has
 * `..` or a leading slash, and each name comes once: a tree has no other paths.
 */
import { keepsAttribute } from "./fit-guest.ts";
import type { TarItem } from "./tar-reader.ts";
import { tarEnd, tarHeaders, tarPadding } from "./tar-writer.ts";
import type { WrittenEntry } from "./tar-writer.ts";
import { everyNode } from "./tree.ts";
import type { Directory, FileNode, Node, Placed } from "./tree.ts";

export interface Emission {
  /** Names of everything; hard links are counted once. */
  readonly inodes: number;
  /** Content, in whole blocks of a file system. */
  readonly bytes: number;
  /** Extended attributes, as `setfattr --restore` reads them; empty where there are none. */
  readonly attributes: string;
  /** The archive. @param layer opens a layer again, lowest 0; @param seen is given each file's content */
  tar(
    layer: (number: number) => AsyncIterable<TarItem>,
    seen: (node: FileNode, piece: Buffer) => void,
  ): AsyncGenerator<Buffer>;
}

const blockBytes = 4096;
const batchBytes = 256 * 1024;

interface PlacedFile {
  readonly path: string;
  readonly node: FileNode;
}

export function planEmission(root: Directory): Emission {
  const folders: Placed[] = [];
  const inline: PlacedFile[] = [];
  const furtherNames: (Placed & { readonly link: string })[] = [];
  const links: Placed[] = [];
  const firstName = new Map<Node, string>();
  const byLayer = new Map<number, Map<number, PlacedFile>>();
  const attributes: string[] = [];
  let inodes = 0;
  let bytes = 0;
  for (const { path, node } of everyNode(root)) {
    if (node.kind === "device") continue;
    const known = firstName.get(node);
    // Two names of one symbolic link are as good as two links.
    if (known !== undefined && node.kind !== "symlink") {
      furtherNames.push({ path, node, link: `./${known}` });
      continue;
    }
    firstName.set(node, path);
    inodes += 1;
    bytes += roomFor(node);
    attributes.push(...attributeLines(path, node));
    if (node.kind === "symlink") links.push({ path, node });
    else if (node.kind !== "file") folders.push({ path, node });
    else if (Buffer.isBuffer(node.content)) inline.push({ path, node });
    else {
      const { layer, entry } = node.content;
      const files = byLayer.get(layer) ?? new Map<number, PlacedFile>();
      byLayer.set(layer, files.set(entry, { path, node }));
    }
  }
  const pieces: Emission["tar"] = async function* (layer, seen) {
    for (const { path, node } of folders) yield headersOf(path, node, {});
    for (const { path, node } of inline) {
      const content = node.content as Buffer;
      yield Buffer.concat([headersOf(path, node, {}), content, tarPadding(content.length)]);
    }
    for (const [number, files] of [...byLayer].sort(([a], [b]) => a - b)) {
      yield* filesOf(layer(number), files, seen);
    }
    for (const { path, node, link } of furtherNames) {
      yield headersOf(path, node, { kind: "hardlink", link, bytes: 0 });
    }
    for (const { path, node } of links) yield headersOf(path, node, {});
    yield tarEnd;
  };
  return {
    ...{ inodes, bytes, attributes: attributes.join("") },
    tar: (layer, seen) => inBatches(pieces(layer, seen)),
  };
}

/** Most files are small: a write for each of their headers takes longer than all else. */
async function* inBatches(pieces: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let held: Buffer[] = [];
  let bytes = 0;
  for await (const piece of pieces) {
    held.push(piece);
    bytes += piece.length;
    if (bytes < batchBytes) continue;
    yield Buffer.concat(held);
    held = [];
    bytes = 0;
  }
  yield Buffer.concat(held);
}

function attributeLines(path: string, node: Node): string[] {
  const kept = [...(node.facts.xattrs ?? [])].filter(([name]) => keepsAttribute(node, name));
  if (kept.length === 0) return [];
  const values = kept.map(([name, value]) => `${octal(name)}=0x${value.toString("hex")}\n`);
  return [`# file: ./${octal(path)}\n`, ...values, "\n"];
}

/** What could mean something else there is written as its number. */
function octal(name: string): string {
  return name.replace(/[^A-Za-z0-9/._-]/g, (character) => {
    return `\\${character.charCodeAt(0).toString(8).padStart(3, "0")}`;
  });
}

/** Blocks that a node takes beside its inode. */
function roomFor(node: Node): number {
  const own = node.facts.xattrs === null ? 0 : blockBytes;
  if (node.kind === "file") return own + Math.ceil(node.bytes / blockBytes) * blockBytes;
  if (node.kind === "symlink") return own + (node.target.length < 60 ? 0 : blockBytes);
  if (node.kind !== "directory") return own;
  let names = 0;
  for (const name of node.children.keys()) names += 12 + name.length;
  // Blocks of a directory are split as they fill: half full at worst.
  return own + blockBytes * (1 + Math.ceil((2 * names) / blockBytes));
}

async function* filesOf(
  items: AsyncIterable<TarItem>,
  files: ReadonlyMap<number, PlacedFile>,
  seen: (node: FileNode, piece: Buffer) => void,
): AsyncGenerator<Buffer> {
  let index = -1;
  let left = files.size;
  for await (const item of items) {
    index += 1;
    const file = files.get(index);
    if (file === undefined) continue;
    const { node, path } = file;
    yield headersOf(path, node, {});
    for await (const piece of item.content()) {
      seen(node, piece);
      yield piece;
    }
    yield tarPadding(node.bytes);
    left -= 1;
    if (left === 0) return;
  }
  throw new Error("A layer has fewer entries than when it was read first");
}

function headersOf(path: string, node: Node, other: Partial<WrittenEntry>): Buffer {
  if (node.kind === "device") throw new Error("A device is left out");
  const { mode, uid, gid, mtimeSeconds } = node.facts;
  return tarHeaders({
    kind: node.kind,
    name: node.kind === "directory" ? `./${path}/` : `./${path}`,
    link: node.kind === "symlink" ? node.target : "",
    bytes: node.kind === "file" ? node.bytes : 0,
    ...{ mode, uid, gid, mtimeSeconds },
    ...other,
  });
}
