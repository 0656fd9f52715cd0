/** The end of a caller: work that nobody waits for any more is given up. */
import type { FastifyReply } from "fastify";

/** Aborts when the caller has its answer or goes away, and when the server begins to close. */
export function untilGone(reply: FastifyReply, closing: AbortSignal): AbortSignal {
  const gone = new AbortController();
  reply.raw.once("close", () => {
    gone.abort();
  });
  return AbortSignal.any([gone.signal, closing]);
}
