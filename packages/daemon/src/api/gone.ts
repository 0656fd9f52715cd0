/** The end of a caller: work that nobody waits for any more is given up. */
import type { FastifyReply } from "fastify";

/** Calls `then` when the caller has its answer or goes away; at once where it went before. */
export function onceGone({ raw }: FastifyReply, then: () => void): void {
  if (raw.closed) then();
  else raw.once("close", then);
}

/** Aborts when the caller has its answer or goes away, and when the server begins to close. */
export function untilGone(reply: FastifyReply, closing: AbortSignal): AbortSignal {
  const gone = new AbortController();
  onceGone(reply, () => gone.abort());
  return AbortSignal.any([gone.signal, closing]);
}
