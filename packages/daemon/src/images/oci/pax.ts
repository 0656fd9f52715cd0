/**
 * Extended headers of POSIX tar: records `LENGTH KEY=VALUE\n`, where LENGTH counts all of it. Keys are
 * latin1; values are bytes, because an extended attribute may hold any.
 */
import { invalid } from "./archive-error.ts";

export type PaxRecords = ReadonlyMap<string, Buffer>;

/** @throws PerdureError `image_archive_invalid` */
export function parsePax(data: Buffer): PaxRecords {
  const records = new Map<string, Buffer>();
  for (let at = 0; at < data.length;) {
    const space = data.indexOf(0x20, at);
    const digits = space < 0 || space - at > 9 ? "" : data.toString("latin1", at, space);
    const end = at + Number(digits);
    const equals = data.indexOf(0x3d, space);
    const isRecord =
      /^[1-9]\d*$/.test(digits) &&
      end <= data.length &&
      data[end - 1] === 0x0a &&
      equals > space &&
      equals < end;
    if (!isRecord) throw invalid("an extended header of a tar archive in it is malformed");
    records.set(data.toString("latin1", space + 1, equals), data.subarray(equals + 1, end - 1));
    at = end;
  }
  return records;
}

/** The value as text, or undefined where there is none. */
export function paxText(records: PaxRecords, key: string): string | undefined {
  return records.get(key)?.toString("latin1");
}

/** A decimal number, fractions cut off. @throws where it is none */
export function paxNumber(records: PaxRecords, key: string): number | undefined {
  const value = paxText(records, key);
  if (value === undefined || value === "") return undefined;
  const whole = /^(-?\d{1,16})(?:\.\d*)?$/.exec(value)?.[1];
  if (whole === undefined || !Number.isSafeInteger(Number(whole))) {
    throw invalid(
      `an extended header of a tar archive in it has no readable "${key.slice(0, 40)}"`,
    );
  }
  return Number(whole);
}

const schily = "SCHILY.xattr.";
const libarchive = "LIBARCHIVE.xattr.";

/** Extended attributes by name; null where there are none. */
export function paxXattrs(records: PaxRecords): Map<string, Buffer> | null {
  let found: Map<string, Buffer> | null = null;
  for (const [key, value] of records) {
    if (key.startsWith(libarchive)) {
      // The same attribute, encoded; where both are there, the plain one counts.
      const name = unescaped(key.slice(libarchive.length));
      found ??= new Map();
      if (!records.has(schily + name))
        found.set(name, Buffer.from(value.toString("latin1"), "base64"));
    } else if (key.startsWith(schily)) {
      // A copy: the header is a part of a much larger buffer, which would be kept with it.
      (found ??= new Map()).set(key.slice(schily.length), Buffer.from(value));
    }
  }
  return found;
}

function unescaped(name: string): string {
  return name.replace(/%([0-9A-Fa-f]{2})/g, (_, hex: string) =>
    String.fromCharCode(parseInt(hex, 16)),
  );
}
