/**
 * Browsers: which pages may read answers (CORS, https://fetch.spec.whatwg.org/#http-cors-protocol), and
 * open WebSockets, which CORS does not cover. None, unless origins are named. A key is asked for in any
 * case, and sent by the page itself: no cookie, so nothing that another page could make a browser send.
 */
import type { FastifyInstance } from "fastify";
import { PerdureError, routes } from "@perdure/protocol";
import type { ApiRoute } from "@perdure/protocol";

const MAX_AGE_S = 600;
const METHODS = "GET, POST, PUT, PATCH, DELETE";
/** A page sees no other header but those that are safe for everybody. */
const EXPOSED = [
  ...new Set([
    "accept-ranges",
    "content-range",
    "idempotency-replayed",
    "retry-after",
    // Of E2B's lists.
    "x-next-token",
    ...Object.values<ApiRoute>(routes).flatMap(({ answerHeaders }) =>
      Object.keys(answerHeaders?.shape ?? {}),
    ),
  ]),
].join(", ");

/** @param origins as in `https://console.example`; `*` for every one */
export function allowOrigins(server: FastifyInstance, origins: readonly string[]): void {
  const isAllowed = (origin: string): boolean => origins.includes("*") || origins.includes(origin);
  server.addHook("onRequest", async (request, reply) => {
    const { origin, upgrade } = request.headers;
    if (origin === undefined) return;
    if (!isAllowed(origin)) {
      if (upgrade === undefined) return;
      throw new PerdureError("forbidden", `Cannot open a WebSocket from a page of "${origin}"`, {
        hint: "Start the daemon with --cors-origin for that origin.",
      });
    }
    void reply.headers({
      "access-control-allow-origin": origin,
      vary: "origin",
      "access-control-expose-headers": EXPOSED,
    });
    const asked = request.headers["access-control-request-headers"];
    if (request.method !== "OPTIONS") return;
    return reply
      .code(204)
      .headers({
        "access-control-allow-methods": METHODS,
        "access-control-allow-headers": asked ?? "authorization, content-type, idempotency-key",
        "access-control-max-age": MAX_AGE_S,
      })
      .send();
  });
}
