/** Errors of formats, worker threads and the file system as the protocol reports them. */
import { statfs } from "node:fs/promises";
import { PerdureError } from "@perdure/protocol";
import { Damage } from "./damage.ts";

/** What was being opened; `action` reads on from "Cannot". */
export function storeError(error: unknown, action: string): PerdureError {
  if (error instanceof PerdureError) return error;
  if (!(error instanceof Damage))
    return new PerdureError("internal", `Cannot ${action}: ${messageOf(error)}`, { cause: error });
  return new PerdureError(
    error.check === "signature" ? "checkpoint_signature" : "checkpoint_digest_mismatch",
    `Cannot ${action}: ${error.message}`,
    {
      hint: hintOf(error),
      details: { part: error.part, check: error.check },
      cause: error,
    },
  );
}

function hintOf({ part, check }: Damage): string {
  const elsewhere = "put it back from a copy, or go back to another checkpoint";
  if (check === "presence" && part === "layer") return `A file of the disk is gone: ${elsewhere}.`;
  return `A file changed after it was written: ${elsewhere}, or recover from the disk.`;
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

export function isDiskFull(error: unknown): boolean {
  const code = (error as NodeJS.ErrnoException | null)?.code;
  return code === "ENOSPC" || code === "EDQUOT" || code === "disk_full";
}

export async function freeBytes(path: string): Promise<number> {
  const stats = await statfs(path);
  return stats.bavail * stats.bsize;
}

export async function diskFull(
  path: string,
  action: string,
  needBytes: number,
  keptFree = 0,
): Promise<PerdureError> {
  const free = Math.max(0, (await freeBytes(path)) - keptFree);
  const missing = Math.max(0, needBytes - free);
  return new PerdureError(
    "disk_full",
    `Cannot ${action}: it needs ${needBytes} bytes and the disk has ${free} free${keptFree > 0 ? ` beyond the ${keptFree} that are kept` : ""}`,
    {
      hint: `Free ${missing === 0 ? "some space" : `${missing} bytes or more`} on the file system of "${path}", then try again.`,
      details: { needBytes, freeBytes: free },
    },
  );
}
