/** A WebSocket, whoever made it: what an attachment needs of it. */
import { PerdureError } from "@perdure/protocol";
import { cancelledError } from "./transport.ts";
import type { MessageSocket, SocketEvents } from "./transport.ts";

/** What Node's and a browser's have in common. */
export interface WebSocketLike {
  binaryType: string;
  readonly readyState: number;
  addEventListener(
    type: "open" | "message" | "close" | "error",
    listener: (event: { readonly data?: unknown }) => void,
  ): void;
  send(data: string | Uint8Array<ArrayBuffer>): void;
  close(): void;
}

const OPEN = 1;

/**
 * Resolves when the socket is open. Nothing is said of why it does not open.
 *
 * @throws `cancelled` where the signal aborts first; null where it did not open
 */
export function openSocket(
  socket: WebSocketLike,
  events: SocketEvents,
  signal: AbortSignal | undefined,
): Promise<MessageSocket | null> {
  socket.binaryType = "arraybuffer";
  return new Promise((resolve, reject) => {
    const onAbort = (): void => {
      socket.close();
      reject(cancelledError(signal?.reason));
    };
    if (signal?.aborted === true) {
      onAbort();
      return;
    }
    signal?.addEventListener("abort", onAbort, { once: true });
    let opened = false;
    socket.addEventListener("open", () => {
      opened = true;
      signal?.removeEventListener("abort", onAbort);
      resolve({
        send: (data) => {
          if (socket.readyState === OPEN) socket.send(data as string | Uint8Array<ArrayBuffer>);
        },
        close: () => socket.close(),
      });
    });
    socket.addEventListener("message", ({ data }) => {
      if (typeof data === "string") events.text(data);
      else if (data instanceof ArrayBuffer) events.bytes(new Uint8Array(data));
    });
    // An error is always followed by a close.
    socket.addEventListener("error", () => undefined);
    socket.addEventListener("close", () => {
      signal?.removeEventListener("abort", onAbort);
      if (opened) events.closed();
      else resolve(null);
    });
  });
}

/** Why a socket did not open: `ask` is the same request without an upgrade, which is told. */
export async function whyNotOpen(name: string, ask: Promise<unknown>): Promise<PerdureError> {
  try {
    await ask;
  } catch (error) {
    const known = PerdureError.from(error);
    if (known.details["upgrade"] === undefined) return known;
  }
  return new PerdureError("interrupted", `The connection to "${name}" became no WebSocket`, {
    hint: "Something on the way does not let them pass; `output`, `writeStdin` and `signal` do without.",
  });
}
