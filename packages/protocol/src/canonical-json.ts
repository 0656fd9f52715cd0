/**
 * Canonical JSON and the digests taken of it.
 *
 * The form is RFC 8785 (JCS) restricted to what Perdure signs: objects, arrays, strings, booleans,
 * null and integers within ±2^53. Keys sort by UTF-16 code units, no white space, members whose
 * value is `undefined` are left out. Fractions are refused, so no two writers can disagree on one.
 */
import { sha256 } from "@noble/hashes/sha2.js";
import { bytesToHex, utf8ToBytes } from "@noble/hashes/utils.js";

/** A value that has a canonical form. */
export type CanonicalValue =
  | null
  | boolean
  | number
  | string
  | readonly CanonicalValue[]
  | { readonly [key: string]: CanonicalValue | undefined };

/** The value of `text` where that is canonical JSON; undefined where it is anything else. */
export function parseCanonical(text: string): CanonicalValue | undefined {
  try {
    const value = JSON.parse(text) as CanonicalValue;
    return canonicalJson(value) === text ? value : undefined;
  } catch {
    // No JSON, or JSON that has no canonical form.
    return undefined;
  }
}

/**
 * The one canonical text of `value`.
 *
 * @throws TypeError for a number that is not a safe integer, and for lone surrogates.
 */
export function canonicalJson(value: CanonicalValue): string {
  if (value === null || typeof value === "boolean") return String(value);
  if (typeof value === "number") {
    if (!Number.isSafeInteger(value)) {
      throw new TypeError(`Canonical JSON holds integers within ±2^53 only, not ${String(value)}`);
    }
    return String(value === 0 ? 0 : value);
  }
  if (typeof value === "string") {
    if (!value.isWellFormed()) throw new TypeError("Canonical JSON holds well-formed strings only");
    return JSON.stringify(value);
  }
  if (isArray(value)) return `[${value.map(canonicalJson).join(",")}]`;
  const members = Object.keys(value)
    .sort()
    .flatMap((key) => {
      const member = value[key];
      return member === undefined ? [] : [`${canonicalJson(key)}:${canonicalJson(member)}`];
    });
  return `{${members.join(",")}}`;
}

function isArray(value: CanonicalValue): value is readonly CanonicalValue[] {
  return Array.isArray(value);
}

/** SHA-256 of bytes, or of the UTF-8 form of a string, as 64 lower-case hex digits. */
export function sha256Hex(data: Uint8Array | string): string {
  return bytesToHex(sha256(typeof data === "string" ? utf8ToBytes(data) : data));
}

/** SHA-256 of the canonical JSON of `value`, as 64 lower-case hex digits. */
export function digestOf(value: CanonicalValue): string {
  return sha256Hex(canonicalJson(value));
}
