/** A stream that ends although what it tells of goes on: because its caller's time is over, or the daemon's. */
import { PerdureError } from "@perdure/protocol";

/** @throws what ended it, where something has */
export function assertGoesOn(caller: AbortSignal, closing: AbortSignal): void {
  if (closing.aborted) {
    throw new PerdureError("daemon_unreachable", "The stream ends: the daemon is stopping", {
      hint: "Programs go on; connect to them again.",
    });
  }
  caller.throwIfAborted();
}
