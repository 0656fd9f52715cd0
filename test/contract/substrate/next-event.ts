import type { Machine, MachineEvent } from "../../../packages/daemon/src/core/ports/substrate.ts";

/** What happens to the machine next, or what has happened to it already. */
export function nextEvent(machine: Machine): Promise<MachineEvent> {
  return new Promise((resolve) => {
    machine.onEvent(resolve);
  });
}
