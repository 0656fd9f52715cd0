/** Work on a machine that something may happen to meanwhile. */
import type { PerdureError } from "@perdure/protocol";
import type { Machine, MachineEvent } from "./ports/substrate.ts";

/** The outcome of `work`; rejects at once with what `why` makes of what the machine does meanwhile, if anything. */
export async function whileMachineRuns<T>(
  machine: Machine,
  work: Promise<T>,
  why: (event: MachineEvent) => PerdureError | null,
): Promise<T> {
  const happened = Promise.withResolvers<never>();
  const unwatch = machine.onEvent((event) => {
    const error = why(event);
    if (error !== null) happened.reject(error);
  });
  try {
    return await Promise.race([work, happened.promise]);
  } finally {
    unwatch();
  }
}
