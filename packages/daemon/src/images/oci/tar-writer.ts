/**
 * Writes the headers of a tar archive for GNU tar, which unpacks the tree. GNU's long names, because they
 * are bytes as they are.
 */
import type { TarEntry } from "./tar-reader.ts";
import { blockBytes } from "./tar-header.ts";

const types = { file: "0", hardlink: "1", symlink: "2", directory: "5", fifo: "6" } as const;

export type WrittenEntry = Omit<TarEntry, "kind" | "xattrs"> & {
  readonly kind: keyof typeof types;
};

/** All headers of an entry. For a file `entry.bytes` bytes of content follow, and their padding. */
export function tarHeaders(entry: WrittenEntry): Buffer {
  const parts: Buffer[] = [];
  if (entry.name.length > 100) parts.push(...extension("L", nulEnded(entry.name)));
  if (entry.link.length > 100) parts.push(...extension("K", nulEnded(entry.link)));
  parts.push(header({ ...entry, type: types[entry.kind] }));
  return Buffer.concat(parts);
}

/** What makes `bytes` bytes of content a whole number of blocks. */
export function tarPadding(bytes: number): Buffer {
  return Buffer.alloc((blockBytes - (bytes % blockBytes)) % blockBytes);
}

/** The end of an archive. */
export const tarEnd = Buffer.alloc(2 * blockBytes);

function extension(type: string, data: Buffer): Buffer[] {
  const name = "././@LongLink";
  const facts = { name, link: "", mode: 0o644, uid: 0, gid: 0, mtimeSeconds: 0 };
  return [header({ ...facts, type, bytes: data.length }), data, tarPadding(data.length)];
}

function nulEnded(text: string): Buffer {
  return Buffer.from(`${text}\0`, "latin1");
}

interface HeaderFacts extends Pick<
  TarEntry,
  "name" | "link" | "mode" | "uid" | "gid" | "bytes" | "mtimeSeconds"
> {
  readonly type: string;
}

function header(facts: HeaderFacts): Buffer {
  const block = Buffer.alloc(blockBytes);
  block.write(facts.name.slice(0, 100), 0, "latin1");
  put(block, 100, 8, facts.mode);
  put(block, 108, 8, facts.uid);
  put(block, 116, 8, facts.gid);
  put(block, 124, 12, facts.bytes);
  put(block, 136, 12, facts.mtimeSeconds);
  block.fill(0x20, 148, 156);
  block.write(facts.type, 156, "latin1");
  block.write(facts.link.slice(0, 100), 157, "latin1");
  block.write("ustar  \0", 257, "latin1");
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return block;
}

/** Octal where it fits, else base 256. */
function put(block: Buffer, at: number, length: number, value: number): void {
  const digits = value.toString(8);
  if (digits.length < length) {
    block.write(digits.padStart(length - 1, "0"), at, "latin1");
    return;
  }
  let rest = BigInt(value);
  for (let index = at + length - 1; index > at; index--) {
    block[index] = Number(rest & 0xffn);
    rest >>= 8n;
  }
  block[at] = 0x80;
}
