/**
 * By what a guest's kernel keeps time, and what of it can be moved at a wake.
 *
 * Under emulation that is the time stamp counter: 64 bits wide, cheap to read, and part of the device state.
 * The kernel's other source there, the ACPI timer, has 24 bits: it turns over every 4.7 s and cannot be moved.
 * Under KVM a kernel keeps time by kvm-clock; moving that was never tried on a Linux guest.
 */
import type { SubstrateFacts } from "@perdure/protocol";
import type { Accelerator } from "./command-line.ts";

type MovableClock = SubstrateFacts["movableClock"];

/** Undefined: none. A counter whose rate the host does not tell is none. */
export function movableClock(accelerator: Accelerator, tscKhz: number): MovableClock {
  return accelerator === "tcg" && tscKhz > 0 ? "tsc" : undefined;
}

/**
 * What the kernel is told about its clocks, beside the image's own command line.
 *
 * - `tsc=reliable`: no watchdog over the counter. It compares with the ACPI timer, marks the counter unstable on
 *   a busy host, and would after every move. What it is for, a host whose counter runs at another rate, is seen
 *   to at each wake (core/guest-clock.ts). With two CPUs the kernel would not take the counter at all otherwise.
 * - `tsc_early_khz`: under emulation the counter is the host's. Measured at boot against the PIT on a busy host,
 *   it was wrong by a factor of 19 once in eight boots, and nothing but the watchdog would notice.
 * - `nowatchdog`, `rcu_cpu_stall_suppress`: after a move of minutes the kernel would report CPUs that were stuck
 *   for as long. A VM that hangs is seen from outside.
 */
export function clockArguments(accelerator: Accelerator, tscKhz: number): readonly string[] {
  if (movableClock(accelerator, tscKhz) === undefined) return [];
  return [
    "tsc=reliable",
    `tsc_early_khz=${tscKhz}`,
    "nowatchdog",
    "rcupdate.rcu_cpu_stall_suppress=1",
  ];
}
