/**
 * Paths as E2B's clients send them: from a home on, through symbolic links, and wherever root may go, as there
 * whoever has a token is root. Ours follow no link and keep to the user's rights, so what is refused for that is
 * tried again by another way.
 */
import { posix } from "node:path";
import { apiLimits, PerdureError } from "@perdure/protocol";
import type { ErrorCode } from "@perdure/protocol";
import type { Commands, Target } from "../../core/command.ts";
import type { Account } from "./account.ts";
import { runInside } from "./run-inside.ts";

type Running = Pick<Commands, "execute" | "output">;

/** Absolute, without `.`, `..` and a slash at its end. @throws `bad_request` */
export function absolutePath(sent: string, { home }: Account): string {
  if (sent.includes("\0") || Buffer.byteLength(sent) > apiLimits.pathBytesMax) {
    throw new PerdureError("bad_request", "Cannot use the path: it is too long, or holds a NUL");
  }
  if (sent.startsWith("~") && sent !== "~" && !sent.startsWith("~/")) {
    throw new PerdureError("bad_request", "Cannot use the path: only one's own home is known as ~");
  }
  const path = posix.resolve(home, sent === "~" ? "" : sent.replace(/^~\//, ""));
  return path;
}

/**
 * `work` on the path, and where a link stands in it, on where that leads. `last`: whether the last part, too, is
 * followed where it is a link.
 */
export async function throughLinks<T>(
  commands: Running,
  target: Target,
  path: string,
  last: "followed" | "kept",
  work: (path: string) => Promise<T>,
): Promise<T> {
  try {
    return await work(path);
  } catch (error) {
    if (!isRefused(error, "path_is_link")) throw error;
    return work(await realPath(commands, target, path, last));
  }
}

/** Where the path leads; what of it is not there yet stays as it is. */
export async function realPath(
  commands: Running,
  target: Target,
  path: string,
  last: "followed" | "kept",
): Promise<string> {
  const asked = last === "followed" ? path : posix.dirname(path);
  const [found = ""] = await realPaths(commands, target, [asked]);
  return last === "followed" ? found : posix.join(found, posix.basename(path));
}

/** Of paths in one argument list. */
const PATHS_MAX = 100;
const PATH_BYTES_MAX = 32 * 1024;

/** Where each of them leads. */
export async function realPaths(
  commands: Running,
  target: Target,
  paths: readonly string[],
): Promise<string[]> {
  const found: string[] = [];
  while (found.length < paths.length) {
    const some = beginningOf(paths.slice(found.length));
    const argv = ["realpath", "-zm", "--", ...some];
    const printed = (await runInside(commands, target, argv, "0")).split("\0");
    if (printed.length !== some.length + 1 || !printed.slice(0, -1).every(isAbsolute)) {
      throw new PerdureError("path_is_link", "The path leads nowhere");
    }
    found.push(...printed.slice(0, -1));
  }
  return found;
}

const isAbsolute = (path: string): boolean => path.startsWith("/");

/** At least one. */
function beginningOf(paths: readonly string[]): readonly string[] {
  let bytes = 0;
  const end = paths.findIndex((path, i) => {
    bytes += Buffer.byteLength(path);
    return i > 0 && (i === PATHS_MAX || bytes > PATH_BYTES_MAX);
  });
  return end === -1 ? paths : paths.slice(0, end);
}

/** `work` as the user, and where that user may not, as root. Tells which of them it was. */
export async function asUserOrRoot<T>(
  { name }: Account,
  work: (user: string) => Promise<T>,
): Promise<{ readonly value: T; readonly isRoot: boolean }> {
  try {
    return { value: await work(name), isRoot: false };
  } catch (error) {
    if (!isRefused(error, "path_denied")) throw error;
    return { value: await work("0"), isRoot: true };
  }
}

/** Gives the user what root has made. */
export async function giveTo(
  commands: Running,
  target: Target,
  { name, uid }: Account,
  path: string,
): Promise<void> {
  const owner = /^[0-9]+$/.test(name) ? String(uid) : `${name}:`;
  await runInside(commands, target, ["chown", "-h", "--", owner, path], "0");
}

export function isRefused(error: unknown, ...codes: readonly ErrorCode[]): boolean {
  return error instanceof PerdureError && codes.includes(error.code);
}
