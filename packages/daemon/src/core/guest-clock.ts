/**
 * A guest's monotonic clock over a sleep. It stands still with the CPUs, so a program that waits for a time
 * has all of its rest before it at the wake. Where somebody waits in earnest the clock is moved forward by the
 * time away, before the CPUs run: what came due ends at once, the rest goes on from where it would be.
 *
 * - I4: moved or not, the wall clock is set afterwards as always; by how much tells whether the move worked.
 * - I10: a clock that cannot be moved is no reason to refuse a wake; the report says that waits last longer.
 */
import {
  PerdureError,
  type GateCheck,
  type GuestClockFacts,
  type Route,
  type SubstrateFacts,
} from "@perdure/protocol";
import { engineLimits } from "./limit.ts";
import type { GuestLink } from "./ports/guest-link.ts";
import type { ClockAdvance } from "./ports/substrate.ts";

/** Name of the check that tells of it. */
const ADVANCE = "clock-advance";

/** What a wake does about the guest's clocks. */
export interface ClockPlan {
  /** How far the monotonic clock is moved; null: not at all. */
  readonly advance: ClockAdvance | null;
  /** Why it is not moved though it was wanted; null where it was not wanted, or is. */
  readonly obstacle: string | null;
  /** What the guest's kernel is made to keep time by from here on; null: as it does. */
  readonly source: "tsc" | "acpi_pm" | null;
}

/**
 * Whether a continuation counts the time away on the monotonic clock, and what the report says where it cannot.
 * Else time-outs between programs would end that nobody was awake to keep
 * (docs/decisions/time-asleep-counts-where-somebody-waits.md).
 *
 * A process that had the CPU at the cut would be charged with all the time away, and starve beside others for as
 * long: only a workload that was frozen has none.
 */
export function wantedAdvance(
  route: Route,
  waitDueMs: number | null,
  frozen: boolean,
): { readonly advanceClock: boolean; readonly checks: readonly GateCheck[] } {
  const isWaitedFor = route === "wake" && waitDueMs !== null;
  if (!isWaitedFor || frozen) return { advanceClock: isWaitedFor, checks: [] };
  return { advanceClock: false, checks: [notMoved("its workload did not freeze at the cut")] };
}

export const noClockPlan: ClockPlan = { advance: null, obstacle: null, source: null };

/**
 * @param capturedOn what the checkpoint says, with what the guest kept time by at the cut
 * @param offered what this host is
 * @param awayMs how far the clock is wanted to be moved; null: not at all
 */
export function planClock(
  capturedOn: SubstrateFacts,
  offered: SubstrateFacts,
  awayMs: number | null,
): ClockPlan {
  const source = sourceHere(capturedOn, offered);
  if (awayMs === null) return { advance: null, obstacle: null, source };
  const obstacle = whyFixed(capturedOn.guestClock, offered);
  if (obstacle !== null) return { advance: null, obstacle, source };
  const tscHz = rateOf(capturedOn);
  const ms = Math.min(Math.max(0, awayMs), engineLimits.clockAdvanceMs);
  return { advance: { ms, tscHz }, obstacle: null, source };
}

function whyFixed(clock: GuestClockFacts | undefined, offered: SubstrateFacts): string | null {
  if (offered.movableClock === undefined) return "this VMM cannot move a guest's clock";
  if (clock === undefined) {
    return "it was captured by an older version, which did not tell what the guest keeps time by";
  }
  if (clock.source === offered.movableClock) return null;
  return `its kernel keeps time by ${clock.source}, which cannot be moved`;
}

/** Ticks of the counter in the guest kernel's second, where that is known at all. */
function rateOf({ guestClock, tscKhz }: SubstrateFacts): number | null {
  return guestClock?.tscHz ?? (tscKhz > 0 ? tscKhz * 1000 : null);
}

/**
 * The counter is the host's. On a host where it runs at another rate than the guest's kernel measured, time
 * inside would run faster or slower: the kernel's other source is right on every host, though slower to read.
 */
function sourceHere(capturedOn: SubstrateFacts, offered: SubstrateFacts): ClockPlan["source"] {
  const { guestClock } = capturedOn;
  const wantedHz = rateOf(capturedOn);
  if (offered.movableClock !== "tsc" || guestClock === undefined || wantedHz === null) return null;
  const isSame = Math.abs((offered.tscKhz * 1000) / wantedHz - 1) <= engineLimits.tscRateTolerance;
  if (guestClock.source === "tsc") return isSame ? null : "acpi_pm";
  // The rate was measured by the guest itself, so the kernel kept time by the counter once.
  return guestClock.source === "acpi_pm" && isSame && guestClock.tscHz !== null ? "tsc" : null;
}

/** What the report says of the plan. @param movedMs how far the wall clock had to be moved after it */
export function checkClockPlan(
  { advance, obstacle, source }: ClockPlan,
  movedMs: number,
): GateCheck[] {
  const checks: GateCheck[] = [];
  if (obstacle !== null) {
    checks.push(notMoved(obstacle));
  } else if (advance !== null) {
    const isRight = Math.abs(movedMs) <= engineLimits.clockAdvanceSlackMs;
    const moved = `The monotonic clock was moved by ${seconds(advance.ms)} s`;
    const detail = isRight
      ? `${moved}; the wall clock was then off by ${movedMs.toFixed(0)} ms.`
      : `${moved}, but the wall clock was then off by ${seconds(movedMs)} s: waits inside may end at another time.`;
    checks.push({ check: ADVANCE, outcome: isRight ? "passed" : "notice", detail });
  }
  if (source !== null) {
    const detail =
      source === "tsc"
        ? "The time stamp counter runs as the guest's kernel knows it again: it keeps time by it."
        : "The time stamp counter of this host runs at another rate: the guest's kernel keeps time by the ACPI timer, and waits inside last longer by each time away.";
    const outcome = source === "tsc" ? "passed" : "notice";
    checks.push({ check: "clock-source", outcome, detail });
  }
  return checks;
}

function notMoved(obstacle: string): GateCheck {
  const detail = `Waits inside last longer by the time away: ${obstacle}.`;
  return { check: ADVANCE, outcome: "notice", detail };
}

function seconds(ms: number): string {
  return (ms / 1000).toFixed(1);
}

/** For a manifest: what the guest keeps time by now. Not known is no reason to fail a cut. */
export async function guestClockFacts(
  link: GuestLink | null,
): Promise<Pick<SubstrateFacts, "guestClock">> {
  try {
    const clock = (await link?.info(engineLimits.clockMs))?.clock ?? null;
    return clock === null ? {} : { guestClock: clock };
  } catch {
    return {};
  }
}

/**
 * Takes what passed since the freeze off waits that the freeze turned into a rest of time. Before a thaw.
 * @returns why it could not be done; null: done, or nothing is frozen
 */
export async function shortenWaits(link: GuestLink): Promise<string | null> {
  try {
    await link.shortenFrozenWaits();
    return null;
  } catch (error) {
    const { code, message } = PerdureError.from(error);
    return code === "bad_request" ? null : message;
  }
}
