/** The guest's wall clock, judged by the host's. */
import { expect } from "vitest";
import type { DaemonUnderTest } from "./daemon-under-test.ts";

const CLOCK_ERROR_MS = 500;
/** Longer than any clock error that is allowed. */
export const AWAY_MS = 3_000;

/** A while in which a clock that stands still would be seen to. */
export function away(): Promise<void> {
  return new Promise((back) => setTimeout(back, AWAY_MS));
}

/** The first exec's clock lies within its round trip, give or take; so does the quickest of a few more. */
export async function expectRightClock(under: DaemonUnderTest, agent: string): Promise<void> {
  const errors: number[] = [];
  let best = { trip: Infinity, error: Infinity };
  for (let tries = 0; tries < 4; tries++) {
    const sentMs = Date.now();
    const guestMs = Number(await under.sh(agent, "date +%s.%N")) * 1000;
    const answeredMs = Date.now();
    errors.push(Math.max(0, sentMs - guestMs, guestMs - answeredMs));
    const trip = answeredMs - sentMs;
    const error = Math.abs(guestMs - (sentMs + answeredMs) / 2);
    if (trip < best.trip) best = { trip, error };
  }
  expect(errors[0]).toBeLessThan(CLOCK_ERROR_MS);
  expect(best.error).toBeLessThan(CLOCK_ERROR_MS + best.trip / 2);
}
