/**
 * Device state of a fake machine. It carries digests of memory and disk at the cut: a load that finds
 * others is refused loudly, where a real VMM would go on and be wrong.
 */
import { PerdureError } from "@perdure/protocol";

export interface DeviceState {
  readonly format: "fake-devices";
  readonly machine: string;
  /** How often this computer was captured, over all its machines. */
  readonly cuts: number;
  readonly memory: string;
  readonly disk: string | null;
}

export function encodeDevices(state: DeviceState): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(Buffer.from(JSON.stringify(state)));
}

/** @throws `machine_failed` where the bytes are not such a state */
export function decodeDevices(bytes: Uint8Array): DeviceState {
  try {
    const state = JSON.parse(Buffer.from(bytes).toString("utf8")) as DeviceState;
    // Compared at run time because the bytes come from a file.
    if ((state.format as string) === "fake-devices") return state;
  } catch {
    // Told below.
  }
  throw new PerdureError("machine_failed", "The device state cannot be read");
}
