/** Reads the probe in the daemon (loop-probe.ts). */
import { createConnection } from "node:net";
import { text } from "node:stream/consumers";

export interface LoopDelay {
  readonly p50: number;
  readonly p99: number;
  readonly max: number;
  readonly count: number;
}

/** Delay of the daemon's main loop since the last call, in ms. */
export async function takeLoopDelay(socketPath: string): Promise<LoopDelay> {
  return JSON.parse(await text(createConnection(socketPath))) as LoopDelay;
}
