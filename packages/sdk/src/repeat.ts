/**
 * A call that changes something has an idempotency key of its own. Where the connection breaks before
 * the answer is whole it is not known how the call ended: it is sent again, with the same key, a few
 * times, and so carried out once. What an iterable gave is gone and cannot be sent again.
 */
import { PerdureError } from "@perdure/protocol";
import { pause } from "./pause.ts";
import type { Call, Transport } from "./transport.ts";

/** Waits before a call is sent again, milliseconds: a daemon that is started again is there by then. */
const AGAIN_MS = [50, 200, 800, 2000] as const;

/** `transport`, with keys and repeats. */
export function repeated(transport: Transport): Transport {
  return {
    ...transport,
    json: (schema, call) => sent(call, (keyed) => transport.json(schema, keyed)),
    empty: (call) => sent(call, (keyed) => transport.empty(keyed)),
  };
}

function sent<T>(call: Call, send: (call: Call) => Promise<T>): Promise<T> {
  if (call.once !== true) return send(call);
  const keyed = { ...call, key: freshKey() };
  return canRepeat(call) ? untilAnswered(() => send(keyed), call.signal) : send(keyed);
}

/** Not `randomUUID`: a page that was not loaded over TLS does not have that. */
function freshKey(): string {
  const bytes = globalThis.crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function canRepeat({ body }: Call): boolean {
  return body === undefined || body instanceof Uint8Array || body instanceof Blob;
}

/** @throws what the daemon answered; what broke first, where no repeat came through */
async function untilAnswered<T>(send: () => Promise<T>, signal?: AbortSignal): Promise<T> {
  let broken: unknown;
  for (const waitMs of [...AGAIN_MS, null]) {
    try {
      return await send();
    } catch (error) {
      // At first nobody there is an answer; later it may be a daemon that is being started again.
      const isOpen = isBroken(error) || (broken !== undefined && isUnreachable(error));
      if (!isOpen) throw error;
      broken ??= error;
      if (waitMs !== null) await pause(waitMs, signal);
    }
  }
  throw broken;
}

/** By the transport: the daemon's own `interrupted` has no cause here. */
function isBroken(error: unknown): boolean {
  return error instanceof PerdureError && error.code === "interrupted" && error.cause !== undefined;
}

function isUnreachable(error: unknown): boolean {
  return error instanceof PerdureError && error.code === "daemon_unreachable";
}
