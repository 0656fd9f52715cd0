/**
 * RAM blocks of a VM process. Checkpoints hold one, `mem`; the firmware's are made anew by every start.
 * Any other (a display's, a persistent memory device's) would be lost silently, so a template that has
 * one is refused.
 */
import { PerdureError } from "@perdure/protocol";
import type { QmpClient } from "./qmp.ts";

const known = [/^mem$/, /^pc\.bios$/, /^pc\.rom$/, /^\/rom@etc\//];

/** @throws `machine_start_failed` naming the block */
export async function assertKnownRamBlocks(qmp: QmpClient): Promise<void> {
  const text = await qmp.execute("human-monitor-command", { "command-line": "info ramblock" });
  const unknown = unknownRamBlocks(typeof text === "string" ? text : "");
  if (unknown.length > 0) {
    throw new PerdureError(
      "machine_start_failed",
      `The VM has memory that a checkpoint would not hold: "${unknown.join('", "')}"`,
    );
  }
}

/** Names in the output of `info ramblock` that are not among the known; `mem` must be. */
export function unknownRamBlocks(text: string): string[] {
  const names = text
    .split("\n")
    .slice(1)
    .map((line) => line.trim().split(/\s+/)[0] ?? "")
    .filter((name) => name !== "");
  if (!names.includes("mem")) return ['(no block "mem")'];
  return names.filter((name) => !known.some((pattern) => pattern.test(name)));
}
