/** This process's stdin, for a program elsewhere. */
import { fstatSync } from "node:fs";
import { PerdureError } from "@perdure/sdk";
import type { ProcessHandle } from "@perdure/sdk";

/** A pipe, a socket or a file: something that ends. Not a terminal, not /dev/null. */
export function isPiped(): boolean {
  try {
    const facts = fstatSync(0);
    return facts.isFIFO() || facts.isFile() || facts.isSocket();
  } catch {
    return false;
  }
}

/** Until stdin ends, or nobody reads it any more. */
export async function forwardStdin(handle: ProcessHandle): Promise<void> {
  try {
    for await (const chunk of process.stdin) await handle.writeStdin(chunk as Uint8Array);
    await handle.writeStdin(new Uint8Array(0), { end: true });
  } catch (error) {
    if (!(error instanceof PerdureError) || !over.has(error.code)) throw error;
  }
}

const over = new Set<string>([
  "stdin_closed",
  "process_ended",
  "process_not_found",
  "interrupted",
  "daemon_unreachable",
]);
