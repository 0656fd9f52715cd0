/** Errors of this host's file system as `PerdureError`s. */
import { PerdureError } from "@perdure/protocol";
import type { ErrorCode } from "@perdure/protocol";

const codes: Readonly<Record<string, ErrorCode | undefined>> = {
  ENOENT: "path_not_found",
  ENOTDIR: "path_not_found",
  EACCES: "path_denied",
  EPERM: "path_denied",
  EROFS: "path_denied",
  EISDIR: "path_is_directory",
  ENOSPC: "disk_full",
  EDQUOT: "disk_full",
};

interface LocalError extends NodeJS.ErrnoException {
  /** Of SQLite. */
  readonly errcode?: number;
}

const SQLITE_FULL = 13;

/** `action` reads on from "Cannot". The hint is for all but a full disk, which has its own. */
export function localError(action: string, error: unknown, hint?: string): PerdureError {
  if (error instanceof PerdureError) return error;
  const { code: name = "", message, errcode } = error as LocalError;
  const code = errcode === SQLITE_FULL ? "disk_full" : (codes[name] ?? "internal");
  const advice = code === "disk_full" ? "Free some space on that disk, then try again." : hint;
  // Node says "ENOENT: no such file or directory, open '/x'"; the action names the path already.
  const reason = message.replace(/, \w+( '.*')?$/s, "");
  return new PerdureError(code, `Cannot ${action}: ${reason}`, {
    ...(advice === undefined ? {} : { hint: advice }),
    cause: error,
  });
}
