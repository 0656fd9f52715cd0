/**
 * One 512-byte header of a tar archive: v7, POSIX ustar, or GNU. Text is latin1, one character a byte:
 * names are bytes to the kernel, whatever they mean to a person.
 */
import { invalid } from "./archive-error.ts";

export const blockBytes = 512;

export interface TarHeader {
  readonly name: string;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  /** Bytes of content that follow, before padding. */
  readonly size: number;
  readonly mtimeSeconds: number;
  readonly type: string;
  readonly link: string;
  /** The whole block: GNU's sparse headers keep their map where POSIX has the prefix of a name. */
  readonly block: Buffer;
}

export function isZeroBlock(block: Buffer): boolean {
  return block.every((byte) => byte === 0);
}

/** @throws PerdureError `image_archive_invalid` */
export function parseHeader(block: Buffer): TarHeader {
  if (!hasChecksum(block)) throw invalid("a header of a tar archive in it has a wrong checksum");
  const magic = block.toString("latin1", 257, 265);
  const name = text(block, 0, 100);
  const prefix = magic.startsWith("ustar\0") ? text(block, 345, 155) : "";
  return {
    name: prefix === "" ? name : `${prefix}/${name}`,
    mode: number(block, 100, 8, "mode") & 0o7777,
    uid: number(block, 108, 8, "owner"),
    gid: number(block, 116, 8, "group"),
    size: number(block, 124, 12, "size"),
    mtimeSeconds: signedNumber(block, 136, 12, "time"),
    type: String.fromCharCode(block[156] ?? 0),
    link: text(block, 157, 100),
    block,
  };
}

/** Up to the first NUL. */
export function text(block: Buffer, at: number, length: number): string {
  const end = block.subarray(at, at + length).indexOf(0);
  return block.toString("latin1", at, at + (end < 0 ? length : end));
}

/** @throws where it is no number from 0 to 2^53 − 1 */
export function number(block: Buffer, at: number, length: number, what: string): number {
  const value = signedNumber(block, at, length, what);
  if (value < 0) throw invalid(`a header of a tar archive in it has a negative ${what}`);
  return value;
}

/** Octal digits, or GNU's base 256 where the first bit is set. */
function signedNumber(block: Buffer, at: number, length: number, what: string): number {
  const field = block.subarray(at, at + length);
  const first = field[0] ?? 0;
  if ((first & 0x80) !== 0) {
    let value = (first & 0x40) === 0 ? BigInt(first & 0x3f) : BigInt(first & 0x3f) - 64n;
    for (const byte of field.subarray(1)) value = (value << 8n) | BigInt(byte);
    const small = Number(value);
    if (!Number.isSafeInteger(small)) throw unreadable(what);
    return small;
  }
  const digits = field
    .toString("latin1")
    .replace(/\0[^]*$/, "")
    .trim();
  if (digits === "") return 0;
  if (!/^[0-7]+$/.test(digits)) throw unreadable(what);
  return parseInt(digits, 8);
}

function unreadable(what: string): Error {
  return invalid(`a header of a tar archive in it has no readable ${what}`);
}

/** The sum of all bytes with blanks for itself; some old writers summed signed bytes. */
function hasChecksum(block: Buffer): boolean {
  const digits = block
    .toString("latin1", 148, 156)
    .replace(/\0[^]*$/, "")
    .trim();
  if (!/^[0-7]+$/.test(digits)) return false;
  const wanted = parseInt(digits, 8);
  let unsigned = 0;
  let signed = 0;
  for (let at = 0; at < blockBytes; at++) {
    const byte = at >= 148 && at < 156 ? 0x20 : (block[at] ?? 0);
    unsigned += byte;
    signed += byte > 127 ? byte - 256 : byte;
  }
  return wanted === unsigned || wanted === signed;
}
