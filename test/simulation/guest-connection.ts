/** A connection to a program of the simulation: it says back what it is told, until the link closes. */
import { PerdureError } from "@perdure/protocol";
import type { PortConnection } from "../../packages/daemon/src/core/ports/guest-link.ts";
import type { GuestWire } from "./guest-wire.ts";

export function echoConnection(wire: GuestWire): PortConnection {
  const pieces: Uint8Array[] = [];
  let ended = false;
  let left = false;
  let cause: PerdureError | null = null;
  let changed = (): void => undefined;
  void wire.closed.then((reason) => {
    cause = new PerdureError("interrupted", `The link is closed: ${reason}`, {
      details: { reason },
    });
    changed();
  });
  return {
    async read() {
      for (;;) {
        const piece = pieces.shift();
        if (piece !== undefined) return piece;
        if (ended || left) return null;
        if (cause !== null) throw cause;
        await new Promise<void>((goOn) => (changed = goOn));
      }
    },
    write(bytes) {
      if (cause !== null) return Promise.reject(cause);
      pieces.push(bytes.slice());
      changed();
      return Promise.resolve();
    },
    end() {
      ended = true;
      changed();
    },
    close() {
      left = true;
      changed();
    },
  };
}
