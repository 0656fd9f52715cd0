/**
 * The wake gate: what is set and checked between restoring bytes and letting an agent out (I4).
 *
 * The workload is frozen all the while and the link carries control operations only. Clock and entropy are
 * set at once, in any order: each call costs the guest a wake-up. Then comes the identity. The generation file
 * and the report come last and are inside before anything thaws.
 * What is refused here ends the attempt: nothing was let out, so the checkpoint may be tried again.
 */
import { PerdureError, type GateCheck, type WakeReport } from "@perdure/protocol";
import { checkClockPlan, type ClockPlan } from "./guest-clock.ts";
import { engineLimits } from "./limit.ts";
import type { Clock } from "./ports/clock.ts";
import type { GuestClock, GuestIdentity, GuestLink } from "./ports/guest-link.ts";

export interface GateRequest {
  readonly link: GuestLink;
  readonly clock: Clock;
  readonly generation: number;
  /** Opens the way out: nothing of it is served before the let-out. */
  readonly openWayOut: () => Promise<GateCheck>;
  /** Set where the agent becomes another computer (create, fork). */
  readonly identity: GuestIdentity | null;
  /** What was done, and is to be done, about the guest's clocks. */
  readonly clocks: ClockPlan;
  /** False where the VM was booted: there is no workload yet. */
  readonly restored: boolean;
  /** What was verified before the VM ran. */
  readonly verified: readonly GateCheck[];
  /** The report but for what the gate itself finds out. */
  readonly draft: Omit<
    WakeReport,
    "verdict" | "clock" | "entropyBytes" | "checks" | "phases" | "letOutAtMs"
  >;
}

/** Runs the gate. @throws `clock_skew`, and the link's errors */
export async function passGate(request: GateRequest): Promise<WakeReport> {
  const { link, generation, identity } = request;
  const checks: GateCheck[] = [...request.verified];

  const { entropyBytes } = engineLimits;
  // Before the wall clock is set: at a wrong rate it would not stay right.
  if (request.clocks.source !== null) await link.useClockSource(request.clocks.source);
  const [info, clock, egress] = await Promise.all([
    link.info(engineLimits.gateMs),
    link.setClock(engineLimits.gateMs),
    request.openWayOut(),
    link.addEntropy(request.clock.randomBytes(entropyBytes)),
  ]);
  // The guest agent does nothing else while it writes: beside it the clock would be set less exactly.
  if (identity !== null) await link.setIdentity(identity);
  if (!info.frozen) await link.freeze(engineLimits.freezeMs);
  checks.push(checkFrozen(info.frozen, request.restored));
  checks.push(checkClock(clock), ...checkClockPlan(request.clocks, clock.movedMs), {
    check: "entropy",
    outcome: "passed",
    detail: `The kernel's generator was reseeded with ${entropyBytes} bytes of the host's.`,
  });
  checks.push(
    identity === null
      ? { check: "identity", outcome: "not-applicable", detail: "The same computer." }
      : { check: "identity", outcome: "passed", detail: "A new identity was set." },
  );
  checks.push(egress);
  checks.push({
    check: "generation",
    outcome: "passed",
    detail: `Generation ${generation} is readable inside.`,
  });

  const report: WakeReport = {
    ...request.draft,
    verdict: verdictOf(checks),
    letOutAtMs: null,
    clock,
    entropyBytes,
    checks,
    phases: {},
  };
  await link.setGeneration(generation, JSON.stringify(report));
  return report;
}

function checkFrozen(frozen: boolean, restored: boolean): GateCheck {
  const check = "frozen";
  if (!restored)
    return { check, outcome: "not-applicable", detail: "Nothing ran before the gate." };
  if (frozen) {
    const detail = "The workload was frozen from the cut until now.";
    return { check, outcome: "passed", detail };
  }
  const detail = "The workload ran between the restore and the gate and was frozen here.";
  return { check, outcome: "notice", detail };
}

/** The clock's check. @throws `clock_skew` where the guest's clock is not known to be right enough */
export function checkClock(clock: GuestClock): GateCheck {
  const error = Math.abs(clock.skewMs) + clock.boundMs;
  const detail = `Off by ${clock.skewMs.toFixed(2)} ms ± ${clock.boundMs.toFixed(2)} ms.`;
  if (!(error <= engineLimits.skewRefusedMs)) {
    throw new PerdureError(
      "clock_skew",
      `The guest's clock could not be set within ${engineLimits.skewRefusedMs} ms: ${detail}`,
      { hint: "Try again when the host is less busy" },
    );
  }
  return {
    check: "clock",
    outcome: error <= engineLimits.skewWantedMs ? "passed" : "notice",
    detail,
  };
}

export function verdictOf(checks: readonly GateCheck[]): WakeReport["verdict"] {
  if (checks.some((check) => check.outcome === "failed")) return "quarantine";
  if (checks.some((check) => check.outcome === "notice")) return "continue-with-notices";
  return "continue";
}
