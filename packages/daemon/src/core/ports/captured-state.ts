/** What a checkpoint is written from besides the disk. */
import type { PageBatch } from "./page.ts";
import type { MemoryBase } from "./substrate.ts";

/** A machine's memory and devices at the cut. `pages` holds every page that may differ from `base`. */
export interface CapturedState {
  /** What the machine has mapped: pages are compared with it. */
  readonly base: MemoryBase;
  readonly pages: AsyncIterable<PageBatch>;
  readonly devices: Uint8Array;
  /**
   * Write a base of the agent's own instead of packs (delta beyond the break-even). `memoryBytes` and
   * the base come from the draft.
   */
  readonly ownBase: boolean;
}
