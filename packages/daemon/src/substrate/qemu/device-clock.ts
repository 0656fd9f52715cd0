/**
 * The clock in saved device state: how many ticks the guest's time stamp counter stands at, and how many
 * nanoseconds the clock that QEMU's emulated timers go by. Moved forward together before the state is
 * loaded, a guest that keeps time by its TSC finds that the time passed: its next tick is due at once.
 *
 * QEMU's stream tells no lengths, so that nothing can be found in it but by knowing all that comes before:
 * this section is the first one, and is looked for nowhere else.
 *
 * - I1 The whole section is as it is written here, or nothing is changed: header, version, footer, bounds.
 * - I2 Only its two numbers change, and no other section of this name follows: QEMU would take the last one.
 */
import { PerdureError } from "@perdure/protocol";
import { qemuLimits } from "./limit.ts";

/** Both stand still while the CPUs do. */
export interface DeviceClock {
  /** Of the guest's TSC. Under emulation it counts as the host's does. */
  readonly ticks: bigint;
  readonly ns: bigint;
}

/** @throws `machine_failed` where the state does not begin as QEMU 7.2 to 10.0 write it */
export function readDeviceClock(state: Uint8Array): DeviceClock {
  const view = viewOf(state);
  return {
    ticks: view.getBigInt64(at.ticks),
    ns: view.getBigInt64(at.ns),
  };
}

/**
 * A copy of the state with its clock moved; `tscHz` is what the guest takes for a second.
 * @throws `machine_failed` as above, and where it cannot be moved so far
 */
export function advanceDeviceClock(
  state: Uint8Array,
  ms: number,
  tscHz: number,
): Uint8Array<ArrayBuffer> {
  const { ticks, ns } = readDeviceClock(state);
  if (!(ms >= 0 && ms <= qemuLimits.clockAdvanceMs)) {
    throw refused(`${ms} ms are not within 0 and ${qemuLimits.clockAdvanceMs}`);
  }
  if (!(tscHz >= qemuLimits.tscHzMin && tscHz <= qemuLimits.tscHzMax)) {
    throw refused(`a counter of ${tscHz} Hz is none`);
  }
  const wholeMs = BigInt(Math.round(ms));
  const moved = Uint8Array.from(state);
  const view = viewOf(moved);
  view.setBigInt64(at.ticks, ticks + (wholeMs * BigInt(Math.round(tscHz))) / 1000n);
  view.setBigInt64(at.ns, ns + wholeMs * 1_000_000n);
  return moved;
}

/**
 * `QEVM`, version 3, then a section as `qemu_save_device_state` writes it: type FULL, its number, name,
 * instance 0 and version 2 of the description; the numbers of `vmstate_timers`, big endian, of which the middle
 * one is no longer used; the footer with the section's number. (QEMU, migration/savevm.c and
 * softmmu/cpu-timers.c)
 */
const at = { section: 8, number: 9, name: 13, ticks: 27, unused: 35, ns: 43, footer: 51, end: 56 };
const stream = Uint8Array.from([0x51, 0x45, 0x56, 0x4d, 0, 0, 0, 3]);
const FULL = 4;
const FOOTER = 0x7e;
/** The name with its length, instance, version of the description. */
const timer = Uint8Array.from([5, 0x74, 0x69, 0x6d, 0x65, 0x72, 0, 0, 0, 0, 0, 0, 0, 2]);
/** The same in any instance and version: QEMU would refuse those, or take them for this one. */
const second = Buffer.from(timer.subarray(0, 6));

/** Room to add the longest advance to either number. */
const CLOCK_MAX = 1n << 62n;

function viewOf(state: Uint8Array): DataView {
  if (state.length < at.end) throw refused("it is too short");
  const view = new DataView(state.buffer, state.byteOffset, state.byteLength);
  const isTimer =
    holds(state, 0, stream) && state[at.section] === FULL && holds(state, at.name, timer);
  if (!isTimer) throw refused("it does not begin with the clock");
  const ends =
    state[at.footer] === FOOTER && view.getUint32(at.footer + 1) === view.getUint32(at.number);
  if (!ends || view.getBigInt64(at.unused) !== 0n) {
    throw refused("the section of the clock has another form");
  }
  for (const value of [view.getBigInt64(at.ticks), view.getBigInt64(at.ns)]) {
    if (value < 0n || value >= CLOCK_MAX) throw refused("its clock is out of range");
  }
  if (Buffer.from(state.buffer, state.byteOffset, state.byteLength).includes(second, at.end)) {
    throw refused("it holds a second clock");
  }
  return view;
}

function holds(state: Uint8Array, offset: number, bytes: Uint8Array): boolean {
  return bytes.every((byte, index) => state[offset + index] === byte);
}

function refused(reason: string): PerdureError {
  return new PerdureError(
    "machine_failed",
    `Cannot move the clock of the saved device state: ${reason}`,
    { hint: "Without moving its clock the state may still be loaded." },
  );
}
