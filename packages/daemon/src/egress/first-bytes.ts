/** What the first bytes of a connection say of it: the method of an HTTP request in the clear. */

/** Longest method that is looked for, and the space behind it. */
export const METHOD_BYTES_MAX = 21;

const CR = 0x0d;
const LF = 0x0a;

/**
 * @returns the method, empty where servers might yet find one (they skip empty lines); null where it is no HTTP in the
 *   clear; undefined where more bytes are needed to tell
 */
export function methodOf(bytes: Uint8Array): string | null | undefined {
  const head = Buffer.from(
    bytes.buffer,
    bytes.byteOffset,
    Math.min(bytes.length, METHOD_BYTES_MAX),
  );
  if (head[0] === CR || head[0] === LF) return "";
  const [, method = "", rest = ""] = /^([A-Z]*)([^]?)/.exec(head.toString("latin1")) ?? [];
  if (rest === "") return method.length < METHOD_BYTES_MAX ? undefined : null;
  return rest === " " && method !== "" ? method : null;
}
