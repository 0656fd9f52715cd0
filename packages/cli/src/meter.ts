/** A line on stderr that says how far something is: on a terminal only, drawn at most ten times a second. */
const FRAME_MS = 100;

export interface Meter {
  show(progress: string): void;
  /** Takes the line away. */
  clear(): void;
}

/** Not for programs: `json` is silent. Where stderr is no terminal the title is written once. */
export function createMeter(json: boolean, title: string): Meter {
  const terminal = process.stderr.isTTY;
  let drawnAtMs: number | null = null;
  return {
    show: (progress) => {
      if (json) return;
      const nowMs = performance.now();
      if (drawnAtMs === null && !terminal) process.stderr.write(`${title} …\n`);
      if (terminal && (drawnAtMs === null || nowMs - drawnAtMs >= FRAME_MS)) {
        process.stderr.write(`\r\x1b[2K${title}: ${progress}`);
        drawnAtMs = nowMs;
      }
      drawnAtMs ??= nowMs;
    },
    clear: () => {
      if (drawnAtMs !== null && terminal) process.stderr.write("\r\x1b[2K");
    },
  };
}
