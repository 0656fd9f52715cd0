/** Paths inside the VM, refused here where the guest would refuse them too. */
import { PerdureError } from "@perdure/protocol";
import { printable } from "./violation.ts";

export const PATH_BYTES_MAX = 4095;

/** @throws `bad_request` for a path that is not absolute, too long, or has a `..` in it */
export function checkPath(action: string, path: string): void {
  const wrong = whatIsWrong(path);
  if (wrong !== undefined) throw new PerdureError("bad_request", `Cannot ${action}: ${wrong}`);
}

function whatIsWrong(path: string): string | undefined {
  if (!path.startsWith("/")) return "the path is not absolute";
  if (Buffer.byteLength(path) > PATH_BYTES_MAX) {
    return `the path is longer than ${PATH_BYTES_MAX} bytes`;
  }
  if (path.includes("\0")) return "the path holds a zero byte";
  if (path.split("/").includes("..")) return 'the path has a ".." in it';
  return undefined;
}

/** `text` in quotes, fit for a message. */
export function quoted(text: string): string {
  return `"${printable(text)}"`;
}
