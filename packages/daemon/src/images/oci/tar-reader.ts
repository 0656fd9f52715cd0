/**
 * Reads a tar archive entry by entry, in whatever dialect a container tool wrote it: v7, ustar, PAX,
 * GNU with long names, sparse files. Own code because the readers on the registry take the values of
 * extended attributes for UTF-8 and so damage them, and know no sparse files.
 *
 * The archive is hostile: every length is bounded before it is read, and nothing is done with a name
 * but handing it on.
 */
import { invalid, shown, tooLarge } from "./archive-error.ts";
import type { Limits } from "./archive-error.ts";
import type { ByteSource } from "./byte-source.ts";
import { parsePax, paxNumber, paxText, paxXattrs } from "./pax.ts";
import type { PaxRecords } from "./pax.ts";
import { readGnuMap, readPaxMap, sparseContent } from "./sparse.ts";
import type { SparseMap } from "./sparse.ts";
import { blockBytes, isZeroBlock, parseHeader } from "./tar-header.ts";
import type { TarHeader } from "./tar-header.ts";

export type TarEntryKind = "file" | "directory" | "symlink" | "hardlink" | "fifo" | "device";

export interface TarEntry {
  readonly kind: TarEntryKind;
  /** As it stands in the archive. Latin1: one character a byte. */
  readonly name: string;
  /** Target of a symbolic or hard link, latin1; else empty. */
  readonly link: string;
  /** Permission bits with setuid, setgid and sticky. */
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly mtimeSeconds: number;
  /** Of the content, holes included; 0 for all but files. */
  readonly bytes: number;
  readonly xattrs: ReadonlyMap<string, Buffer> | null;
}

export interface TarItem {
  readonly entry: TarEntry;
  /** Whether less is stored than the content has. */
  readonly isSparse: boolean;
  /** The content, holes as zeros. Once, before the next item is asked for; what is left unread is skipped. */
  content(): AsyncIterable<Buffer>;
}

/** Longest extended header or long name that is read. */
const extensionBytesMax = 1024 * 1024;
/** Longest run of such headers before an entry. */
const extensionsMax = 16;

const kinds: Readonly<Record<string, TarEntryKind>> = {
  "\0": "file",
  "0": "file",
  "7": "file",
  S: "file",
  "1": "hardlink",
  "2": "symlink",
  "3": "device",
  "4": "device",
  "5": "directory",
  "6": "fifo",
};

/** @throws PerdureError `image_archive_invalid`, `too_large` */
export async function* readTar(source: ByteSource, limits: Limits): AsyncGenerator<TarItem> {
  let everywhere: PaxRecords = new Map();
  for (;;) {
    const found = await readEntry(source, everywhere, limits);
    if (found === null) return;
    if ("everywhere" in found) {
      everywhere = found.everywhere;
      continue;
    }
    const { entry, storedBytes, map } = found;
    let read = false;
    // What a sparse file stores is read as a whole or not at all.
    const counted = new CountedSource(source);
    yield {
      entry,
      isSparse: map !== null,
      content: () => {
        if (read) throw new Error("The content of an entry is read once");
        read = true;
        return map === null ? counted.pieces(storedBytes) : sparseContent(map, counted);
      },
    };
    const left = storedBytes - counted.bytes;
    await source.skip(left + ((blockBytes - (found.paddedFrom % blockBytes)) % blockBytes));
  }
}

interface Found {
  readonly entry: TarEntry;
  /** Content bytes that follow. */
  readonly storedBytes: number;
  /** What the header announced: a map may have taken the first of it. */
  readonly paddedFrom: number;
  readonly map: SparseMap | null;
}

async function readEntry(
  source: ByteSource,
  everywhere: PaxRecords,
  limits: Limits,
): Promise<Found | { everywhere: PaxRecords } | null> {
  let own: PaxRecords = new Map();
  let longName: string | undefined;
  let longLink: string | undefined;
  for (let extensions = 0; extensions <= extensionsMax; extensions++) {
    const block = await source.read(blockBytes);
    if (block === null || isZeroBlock(block)) {
      if (extensions > 0) throw invalid("a tar archive in it ends before the entry it announced");
      return null;
    }
    const header = parseHeader(block);
    switch (header.type) {
      case "g":
        return { everywhere: merged(everywhere, parsePax(await extension(source, header))) };
      case "x":
        own = parsePax(await extension(source, header));
        break;
      case "L":
        longName = withoutNul(await extension(source, header));
        break;
      case "K":
        longLink = withoutNul(await extension(source, header));
        break;
      case "V":
        // The name of a volume: no entry.
        await source.skip(padded(header.size));
        break;
      default:
        return entryOf(header, merged(everywhere, own), { longName, longLink }, source, limits);
    }
  }
  throw invalid("a tar archive in it has more headers than entries");
}

async function entryOf(
  header: TarHeader,
  pax: PaxRecords,
  { longName, longLink }: { longName: string | undefined; longLink: string | undefined },
  source: ByteSource,
  limits: Limits,
): Promise<Found> {
  const name = paxText(pax, "GNU.sparse.name") ?? paxText(pax, "path") ?? longName ?? header.name;
  let kind = kinds[header.type];
  if (kind === undefined) {
    throw invalid(`entry ${shown(name)} has the unknown type ${shown(header.type)}`);
  }
  // v7 had no type for directories.
  if (header.type === "\0" && name.endsWith("/")) kind = "directory";
  // Only files have content, whatever a header says.
  const announced = kind === "file" ? (paxNumber(pax, "size") ?? header.size) : 0;
  if (announced < 0) throw invalid(`entry ${shown(name)} has a negative size`);
  if (announced > limits.fileBytesMax) {
    throw tooLarge(`the bytes of ${shown(name)}`, "fileBytesMax", limits);
  }
  const map =
    header.type === "S"
      ? await readGnuMap({ ...header, size: announced }, source, limits)
      : kind === "file"
        ? await readPaxMap(pax, announced, source, limits)
        : null;
  const bytes = map?.realBytes ?? announced;
  if (bytes > limits.fileBytesMax) {
    throw tooLarge(`the bytes of ${shown(name)}`, "fileBytesMax", limits);
  }
  const entry: TarEntry = {
    kind,
    name,
    link:
      kind === "symlink" || kind === "hardlink"
        ? (paxText(pax, "linkpath") ?? longLink ?? header.link)
        : "",
    mode: header.mode,
    uid: ownerOf(paxNumber(pax, "uid") ?? header.uid, name),
    gid: ownerOf(paxNumber(pax, "gid") ?? header.gid, name),
    mtimeSeconds: paxNumber(pax, "mtime") ?? header.mtimeSeconds,
    bytes,
    xattrs: paxXattrs(pax),
  };
  return { entry, storedBytes: map?.storedBytes ?? announced, paddedFrom: announced, map };
}

/** The highest number means "none" to the kernel. */
const ownerMax = 2 ** 32 - 2;

function ownerOf(id: number, name: string): number {
  if (id >= 0 && id <= ownerMax) return id;
  throw invalid(`entry ${shown(name)} has an owner that no user can have`);
}

async function extension(source: ByteSource, header: TarHeader): Promise<Buffer> {
  if (header.size > extensionBytesMax) {
    throw invalid(`a header of a tar archive in it takes more than ${extensionBytesMax} bytes`);
  }
  const data = header.size === 0 ? Buffer.alloc(0) : await source.read(padded(header.size));
  if (data === null) throw invalid("a tar archive in it ends in the middle of a header");
  return data.subarray(0, header.size);
}

function withoutNul(data: Buffer): string {
  const end = data.indexOf(0);
  return data.toString("latin1", 0, end < 0 ? data.length : end);
}

function merged(first: PaxRecords, second: PaxRecords): PaxRecords {
  if (first.size === 0) return second;
  return second.size === 0 ? first : new Map([...first, ...second]);
}

export function padded(bytes: number): number {
  return Math.ceil(bytes / blockBytes) * blockBytes;
}

/** Knows how much was read through it. */
class CountedSource implements ByteSource {
  bytes = 0;
  readonly #source: ByteSource;

  constructor(source: ByteSource) {
    this.#source = source;
  }

  async read(length: number): Promise<Buffer | null> {
    const data = await this.#source.read(length);
    this.bytes += data?.length ?? 0;
    return data;
  }

  async skip(length: number): Promise<void> {
    await this.#source.skip(length);
    this.bytes += length;
  }

  async *pieces(length: number): AsyncGenerator<Buffer> {
    for await (const piece of this.#source.pieces(length)) {
      this.bytes += piece.length;
      yield piece;
    }
  }
}
