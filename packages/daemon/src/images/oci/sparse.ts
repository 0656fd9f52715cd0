/**
 * Sparse files in tar, in the forms that GNU tar has written: old GNU headers (type S), and the PAX
 * forms 0.0, 0.1 and 1.0. A map names the pieces of the file that are stored; the rest is zeros.
 */
import { invalid, tooLarge } from "./archive-error.ts";
import type { Limits } from "./archive-error.ts";
import type { ByteSource } from "./byte-source.ts";
import { paxNumber, paxText } from "./pax.ts";
import type { PaxRecords } from "./pax.ts";
import { blockBytes, number } from "./tar-header.ts";
import type { TarHeader } from "./tar-header.ts";

export interface SparseMap {
  /** Length of the file. */
  readonly realBytes: number;
  /** In order, not overlapping. */
  readonly pieces: readonly { readonly at: number; readonly bytes: number }[];
  /** Stored bytes that are content, after whatever of the map itself was stored before them. */
  readonly storedBytes: number;
}

const malformed = (): Error => invalid("the map of a sparse file in it is malformed");

/** The map of an old GNU header, whose continuation follows it. */
export async function readGnuMap(
  header: TarHeader,
  source: ByteSource,
  limits: Limits,
): Promise<SparseMap> {
  const numbers: number[] = [];
  const take = (block: Buffer, from: number, count: number): void => {
    for (let at = from; at < from + count * 24; at += 24) {
      if ((block[at] ?? 0) === 0) return;
      numbers.push(number(block, at, 12, "map"), number(block, at + 12, 12, "map"));
    }
  };
  take(header.block, 386, 4);
  let more = header.block[482] !== 0;
  while (more) {
    const block = await source.read(blockBytes);
    if (block === null) throw malformed();
    take(block, 0, 21);
    more = block[504] !== 0;
    if (numbers.length / 2 > limits.sparsePiecesMax) throw tooManyPieces(limits);
  }
  return checked(numbers, number(header.block, 483, 12, "size"), header.size, limits);
}

/** The map of a PAX sparse file, or null where the records tell of none. Of form 1.0 it begins the content. */
export async function readPaxMap(
  records: PaxRecords,
  storedBytes: number,
  source: ByteSource,
  limits: Limits,
): Promise<SparseMap | null> {
  const major = paxNumber(records, "GNU.sparse.major");
  if (major === 1 && paxNumber(records, "GNU.sparse.minor") === 0) {
    const realBytes = paxNumber(records, "GNU.sparse.realsize");
    if (realBytes === undefined) throw malformed();
    const { numbers, bytes } = await readStoredMap(source, storedBytes, limits);
    return checked(numbers, realBytes, storedBytes - bytes, limits);
  }
  if (major !== undefined && major !== 0) throw malformed();
  const realBytes = paxNumber(records, "GNU.sparse.size");
  if (realBytes === undefined) return null;
  const map = paxText(records, "GNU.sparse.map");
  if (map === undefined) {
    throw invalid("a sparse file in it has the form PAX 0.0, which repeats its keys");
  }
  const words = map === "" ? [] : map.split(",");
  return checked(words.map(decimal), realBytes, storedBytes, limits);
}

/** Decimal lines, padded to a block: how many pieces, then place and length of each. */
async function readStoredMap(source: ByteSource, storedBytes: number, limits: Limits) {
  let read = 0;
  let text = "";
  const words: string[] = [];
  const wanted = (): number => (words[0] === undefined ? Infinity : 1 + 2 * decimal(words[0]));
  while (words.length < wanted()) {
    const block = read + blockBytes > storedBytes ? null : await source.read(blockBytes);
    if (block === null) throw malformed();
    read += blockBytes;
    text += block.toString("latin1");
    const lines = text.split("\n");
    text = lines.pop() ?? "";
    words.push(...lines);
    if (words.length / 2 > limits.sparsePiecesMax + blockBytes) throw tooManyPieces(limits);
  }
  return { numbers: words.slice(1, wanted()).map(decimal), bytes: read };
}

function decimal(text: string): number {
  if (!/^\d{1,15}$/.test(text)) throw malformed();
  return Number(text);
}

function checked(
  numbers: readonly number[],
  realBytes: number,
  storedBytes: number,
  limits: Limits,
): SparseMap {
  if (numbers.length % 2 !== 0 || realBytes < 0) throw malformed();
  if (numbers.length / 2 > limits.sparsePiecesMax) throw tooManyPieces(limits);
  const pieces: { at: number; bytes: number }[] = [];
  let end = 0;
  let sum = 0;
  for (let index = 0; index < numbers.length; index += 2) {
    const [at = 0, bytes = 0] = numbers.slice(index, index + 2);
    if (at < end || at + bytes > realBytes) throw malformed();
    end = at + bytes;
    sum += bytes;
    pieces.push({ at, bytes });
  }
  if (sum !== storedBytes) throw malformed();
  return { realBytes, pieces, storedBytes };
}

function tooManyPieces(limits: Limits): Error {
  return tooLarge("the pieces of a sparse file", "sparsePiecesMax", limits);
}

const zeros = Buffer.alloc(64 * 1024);

/** The file's bytes, zeros where nothing is stored. */
export async function* sparseContent(map: SparseMap, source: ByteSource): AsyncGenerator<Buffer> {
  let position = 0;
  for (const { at, bytes } of map.pieces) {
    yield* zeroBytes(at - position);
    yield* source.pieces(bytes);
    position = at + bytes;
  }
  yield* zeroBytes(map.realBytes - position);
}

function* zeroBytes(count: number): Generator<Buffer> {
  for (let left = count; left > 0; left -= zeros.length) {
    yield left < zeros.length ? zeros.subarray(0, left) : zeros;
  }
}
