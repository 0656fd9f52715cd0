/** A full disk met by what a VM needs beside its own: notes about it, a stub of its kernel, device state. */
import { statfs } from "node:fs/promises";
import { PerdureError } from "@perdure/protocol";

/** Upper bound of all that. */
const NEED_BYTES = 1024 * 1024;

function isNoSpace(error: unknown): boolean {
  const { code, message } = (error ?? {}) as { code?: unknown; message?: unknown };
  if (code === "ENOSPC" || code === "EDQUOT" || code === "disk_full") return true;
  // What a worker thread met arrives as its message.
  return typeof message === "string" && /\b(ENOSPC|EDQUOT)\b/.test(message);
}

/** `disk_full` where that is what `error` is, else null. `action` reads on from "Cannot". */
export function noSpace(error: unknown, action: string): PerdureError | null {
  return isNoSpace(error) ? diskFull(error, action) : null;
}

/** As `noSpace`, for an error of a program that does not say: where the disk that `path` is on is full now. */
export async function noSpaceAt(
  path: string,
  error: unknown,
  action: string,
): Promise<PerdureError | null> {
  const { bavail, bsize } = await statfs(path);
  return bavail * bsize < NEED_BYTES ? diskFull(error, action) : noSpace(error, action);
}

function diskFull(cause: unknown, action: string): PerdureError {
  return new PerdureError(
    "disk_full",
    `Cannot ${action}: it needs up to ${NEED_BYTES} bytes and the host's disk is full`,
    {
      hint: "Free some space on the host's disk, then try again.",
      details: { needBytes: NEED_BYTES },
      cause,
    },
  );
}
