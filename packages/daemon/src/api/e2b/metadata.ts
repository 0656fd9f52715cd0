/**
 * Metadata of files, as E2B's clients give and read it: each is an extended attribute `user.e2b.KEY`. A file has what
 * came with its last upload.
 */
import type { IncomingHttpHeaders } from "node:http";
import { PerdureError } from "@perdure/protocol";

const HEADER = "x-metadata-";
const ATTRIBUTE = "e2b.";
/** Linux has no longer names. */
const KEY_BYTES_MAX = 255 - "user.".length - ATTRIBUTE.length;
/** Of all of one file: a file system keeps them in one block. */
const BYTES_MAX = 3_072;

export type Metadata = Readonly<Record<string, string>>;

/** From headers, whose names have no case. @throws `bad_request` */
export function metadataIn(headers: IncomingHttpHeaders): Metadata {
  const found: Record<string, string> = {};
  let bytes = 0;
  for (const [name, value] of Object.entries(headers)) {
    if (!name.startsWith(HEADER)) continue;
    const key = name.slice(HEADER.length);
    const text = Array.isArray(value) ? value.join(", ") : (value ?? "");
    if (key === "" || Buffer.byteLength(key) > KEY_BYTES_MAX || !/^[ -~]*$/.test(text)) {
      throw refused(`"${name.slice(0, 64)}" is none: a name, and printable ASCII`);
    }
    bytes += key.length + text.length;
    if (bytes > BYTES_MAX) throw refused(`it has more than ${BYTES_MAX} bytes`);
    found[key] = text;
  }
  return found;
}

export function attributesOf(metadata: Metadata): Readonly<Record<string, string>> {
  return Object.fromEntries(
    Object.entries(metadata).map(([key, value]) => [ATTRIBUTE + key, value]),
  );
}

export function metadataOf(attributes: Readonly<Record<string, string>> = {}): Metadata {
  return Object.fromEntries(
    Object.entries(attributes)
      .filter(([name]) => name.startsWith(ATTRIBUTE) && name !== ATTRIBUTE)
      .map(([name, value]) => [name.slice(ATTRIBUTE.length), value]),
  );
}

function refused(why: string): PerdureError {
  return new PerdureError("bad_request", `Cannot keep the file's metadata: ${why}`);
}
