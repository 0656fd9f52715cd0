/**
 * `Range: bytes=…` of RFC 9110, section 14. One range is honoured; several at once, other units and what is
 * malformed are as if the header were not there, which the RFC allows.
 */
import { PerdureError } from "@perdure/protocol";

/** `suffix`: the last `length` bytes. */
export type ByteRange =
  | { readonly kind: "from"; readonly offset: number; readonly length?: number }
  | { readonly kind: "suffix"; readonly length: number };

export function parseRange(header: string | undefined): ByteRange | null {
  const match = /^bytes=[ \t]*(\d*)-(\d*)[ \t]*$/i.exec(header ?? "");
  if (match === null) return null;
  const [, first = "", last = ""] = match;
  if (first === "") return last === "" ? null : { kind: "suffix", length: whole(last) };
  const offset = whole(first);
  if (last === "") return { kind: "from", offset };
  const length = whole(last) - offset + 1;
  return length < 1 ? null : { kind: "from", offset, length };
}

/** No file reaches so far. */
function whole(digits: string): number {
  return Math.min(Number(digits), 2 ** 52);
}

/** `Content-Range` of an answer with 206. @throws `range_not_satisfiable` */
export function contentRange(
  path: string,
  size: number,
  { offset, length = Infinity }: { readonly offset: number; readonly length?: number },
): string {
  if (offset < size && length > 0) {
    return `bytes ${offset}-${Math.min(offset + length, size) - 1}/${size}`;
  }
  throw new PerdureError(
    "range_not_satisfiable",
    `Cannot read "${path}" from byte ${offset} on: it has ${size} bytes`,
    { details: { size } },
  );
}
