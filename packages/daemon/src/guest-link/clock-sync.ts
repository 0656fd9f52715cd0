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

/** The first round trip after a wake is slow, the next one is not: one that is quick ends a measure. */
const QUICK_MS = 2;
/** On a busy host none is quick: after a few, this is good enough. */
const FEW_ROUND_TRIPS = 3;
const FAIR_MS = 10;
const ROUND_TRIPS_MAX = 12;
/** |skew| + bound at which no further round is made. */
const SETTLED_MS = 10;
const ROUNDS_MAX = 5;
/** The host's wall clock is read in whole milliseconds. */
const RESOLUTION_MS = 0.5;
/** Wall and monotonic clock may differ this much within one measure; more is a jump. */
const DRIFT_MS = 3;

/** The guest's wall clock, milliseconds, and when the answer came, on the host's monotonic clock. */
export interface ClockReading {
  readonly guestMs: number;
  readonly atMs: number;
}

export interface ClockProbe {
  ping(deadlineMs: number): Promise<ClockReading>;
  /** Moves the guest's clock; the reading is from after it. */
  adjust(deltaMs: number, deadlineMs: number): Promise<ClockReading>;
}

type Send = (deadlineMs: number) => Promise<ClockReading>;
type Measure = Omit<GuestClock, "roundTrips" | "movedMs">;

export async function setGuestClock(
  probe: ClockProbe,
  clock: Clock,
  deadlineMs: number,
): Promise<GuestClock> {
  const endMs = clock.monotonicMs() + deadlineMs;
  let roundTrips = 0;
  const counted = (send: Send): Promise<ClockReading> => {
    const leftMs = endMs - clock.monotonicMs();
    if (leftMs <= 0) {
      throw new PerdureError(
        "guest_timeout",
        `Cannot set the guest's clock: not done within ${deadlineMs} ms`,
      );
    }
    roundTrips++;
    return send(leftMs);
  };
  const ping: Send = (leftMs) => probe.ping(leftMs);
  let movedMs = 0;
  let measured = await measure(ping, ping, counted, clock);
  for (let round = 1; round < ROUNDS_MAX && !isSettled(measured); round++) {
    const deltaMs = -measured.skewMs;
    const adjust: Send = (leftMs) => probe.adjust(deltaMs, leftMs);
    movedMs += deltaMs;
    measured = await measure(adjust, ping, counted, clock);
  }
  return { ...measured, roundTrips, movedMs };
}

/** Small, or so uncertain that another adjustment would only be noise. */
function isSettled({ skewMs, boundMs }: Measure): boolean {
  const skew = Math.abs(skewMs);
  return skew + boundMs <= SETTLED_MS || skew <= Math.max(RESOLUTION_MS, boundMs / 4);
}

function isEnough(boundMs: number, roundTrips: number): boolean {
  if (boundMs <= QUICK_MS || roundTrips >= ROUND_TRIPS_MAX) return true;
  return boundMs <= FAIR_MS && roundTrips >= FEW_ROUND_TRIPS;
}

/** The first round trip is `first`, once; those that follow are `others`. */
async function measure(
  first: Send,
  others: Send,
  counted: (send: Send) => Promise<ClockReading>,
  clock: Clock,
): Promise<Measure> {
  let send = first;
  for (;;) {
    const wallAtStart = wallOffset(clock);
    let best = { skewMs: 0, boundMs: Number.POSITIVE_INFINITY };
    for (let roundTrips = 0; !isEnough(best.boundMs, roundTrips); roundTrips++) {
      const sentMs = clock.monotonicMs();
      const { guestMs, atMs } = await counted(send);
      send = others;
      const boundMs = (atMs - sentMs) / 2 + RESOLUTION_MS;
      const hostMs = (sentMs + atMs) / 2 + wallAtStart;
      if (boundMs < best.boundMs) best = { skewMs: guestMs - hostMs, boundMs };
    }
    if (Math.abs(wallOffset(clock) - wallAtStart) <= DRIFT_MS) return best;
  }
}

/** What to add to the monotonic clock to get the wall clock. */
function wallOffset(clock: Clock): number {
  return clock.nowMs() + RESOLUTION_MS - clock.monotonicMs();
}
