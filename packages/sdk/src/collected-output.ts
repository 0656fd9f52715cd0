/** The output of a short program, collected up to a limit. */
import type { Exit } from "@perdure/protocol";
import { concatBytes } from "./bytes.ts";
import type { Output } from "./output.ts";

export const COLLECT_BYTES_DEFAULT = 16 * 1024 * 1024;

export interface RunResult extends Exit {
  readonly process: number;
  readonly stdout: Uint8Array;
  readonly stderr: Uint8Array;
  /** Bytes that were written but are in neither: over the limit, or no longer kept by the agent. */
  readonly cutBytes: number;
}

export interface Collector {
  add(event: Output): void;
  result(process: number, exit: Exit): RunResult;
}

/** Keeps the first `limitBytes` of both streams together, and counts the rest. */
export function createCollector(limitBytes: number): Collector {
  const kept = { stdout: [] as Uint8Array[], stderr: [] as Uint8Array[] };
  let room = limitBytes;
  let cutBytes = 0;
  return {
    add: (event) => {
      if (event.type === "cut") cutBytes += event.to - event.from;
      if (event.type !== "output") return;
      const bytes = event.bytes.subarray(0, room);
      room -= bytes.length;
      cutBytes += event.bytes.length - bytes.length;
      if (bytes.length > 0) kept[event.stream].push(bytes);
    },
    result: (process, { exitCode, signal, timedOut }) => ({
      process,
      exitCode,
      signal,
      timedOut,
      stdout: concatBytes(kept.stdout),
      stderr: concatBytes(kept.stderr),
      cutBytes,
    }),
  };
}
