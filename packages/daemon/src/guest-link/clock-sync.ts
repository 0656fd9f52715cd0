/**
 * Setting the guest's wall clock (I4).
 *
 * As in NTP's client mode, the round trip that took least time says most: its middle is when the guest
 * read its clock, give or take half of it. The host's wall clock may itself jump while this runs, so
 * it is read only together with the monotonic one, and a measure during which the two moved apart is
 * thrown away.
 */
import { PerdureError } from "@perdure/protocol";
import type { Clock } from "../core/ports/clock.ts";
import type { GuestClock } from "../core/ports/guest-link.ts";

/** Round trips in one measure: at least, and at most while none was quick enough. */
const ROUND_TRIPS_MIN = 4;
const ROUND_TRIPS_MAX = 12;
const QUICK_MS = 2;
/** Good enough: no further round is made. */
const SETTLED_MS = 5;
const ROUNDS_MAX = 5;
/** The host's wall clock is read in whole milliseconds. */
const RESOLUTION_MS = 0.5;
/** Wall and monotonic clock may differ this much within one measure; more is a jump. */
const DRIFT_MS = 3;

export interface ClockProbe {
  /** The guest's wall clock, milliseconds, and when the answer came, on the host's monotonic clock. */
  ping(deadlineMs: number): Promise<{ readonly guestMs: number; readonly atMs: number }>;
  adjust(deltaMs: number, deadlineMs: number): Promise<void>;
}

export async function setGuestClock(
  probe: ClockProbe,
  clock: Clock,
  deadlineMs: number,
): Promise<GuestClock> {
  const endMs = clock.monotonicMs() + deadlineMs;
  const leftMs = (): number => {
    const left = endMs - clock.monotonicMs();
    if (left > 0) return left;
    throw new PerdureError(
      "guest_timeout",
      `Cannot set the guest's clock: not done within ${deadlineMs} ms`,
    );
  };
  let measured = await measure(probe, clock, leftMs);
  for (let round = 1; round < ROUNDS_MAX && !isSettled(measured); round++) {
    await probe.adjust(-measured.skewMs, leftMs());
    measured = await measure(probe, clock, leftMs);
  }
  return measured;
}

/** Small, or so uncertain that another adjustment would only be noise. */
function isSettled({ skewMs, boundMs }: GuestClock): boolean {
  const skew = Math.abs(skewMs);
  return skew + boundMs <= SETTLED_MS || skew <= Math.max(RESOLUTION_MS, boundMs / 4);
}

async function measure(probe: ClockProbe, clock: Clock, leftMs: () => number): Promise<GuestClock> {
  for (;;) {
    const wallAtStart = wallOffset(clock);
    let best = { skewMs: 0, boundMs: Number.POSITIVE_INFINITY };
    let roundTrips = 0;
    while (
      roundTrips < ROUND_TRIPS_MIN ||
      (roundTrips < ROUND_TRIPS_MAX && best.boundMs > QUICK_MS)
    ) {
      const sentMs = clock.monotonicMs();
      const { guestMs, atMs } = await probe.ping(leftMs());
      roundTrips++;
      const boundMs = (atMs - sentMs) / 2 + RESOLUTION_MS;
      const hostMs = (sentMs + atMs) / 2 + wallAtStart;
      if (boundMs < best.boundMs) best = { skewMs: guestMs - hostMs, boundMs };
    }
    if (Math.abs(wallOffset(clock) - wallAtStart) <= DRIFT_MS) return { ...best, roundTrips };
  }
}

/** What to add to the monotonic clock to get the wall clock. */
function wallOffset(clock: Clock): number {
  return clock.nowMs() + RESOLUTION_MS - clock.monotonicMs();
}
