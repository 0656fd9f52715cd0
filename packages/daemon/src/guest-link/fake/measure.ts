/** What a test's work costs, told apart from what else the host does. */
import { setTimeout as wait } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

/**
 * What a turn of the main loop may cost in a test: tens of times what it takes, and a tenth of what a flood
 * taken in one turn would. A collector that runs in between must not fail a test.
 */
export const TURN_MS_GENEROUS = 500;

/** Bytes that are reachable now, at most: buffers are given back by a thread, a moment after their collection. */
export function reachableBytes(): number {
  collectGarbage();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
}

/** Resolves once fewer than `bytes` more than `before` are reachable. @throws where they stay */
export async function retainsLess(before: number, bytes: number): Promise<void> {
  for (let tries = 0; reachableBytes() - before >= bytes; tries++) {
    if (tries === 100) throw new Error(`${reachableBytes() - before} bytes stay reachable`);
    await wait(20);
  }
}

/** CPU time of this process that `work` took, milliseconds. */
export function cpuMs(work: () => void): number {
  const before = process.cpuUsage();
  work();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000;
}

/** Longest time that the main loop was not free while `work` ran, milliseconds. */
export async function longestTurnMs(work: () => Promise<unknown>): Promise<number> {
  let longest = 0;
  let done = false;
  let before = process.cpuUsage();
  const look = (): void => {
    const { user, system } = process.cpuUsage(before);
    longest = Math.max(longest, (user + system) / 1000);
    before = process.cpuUsage();
    if (!done) setImmediate(look);
  };
  setImmediate(look);
  await work();
  done = true;
  return longest;
}
