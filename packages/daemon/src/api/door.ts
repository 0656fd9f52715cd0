/**
 * Doors: who comes in by the unix socket and who by TCP. Every request gets its principal here, before a
 * byte of its body is read, and is refused here where that may not call the route or reach the agent.
 */
import type { IncomingMessage } from "node:http";
import type { FastifyInstance, FastifyRequest } from "fastify";
import { keyOfProtocols, PerdureError, tokenOfE2bKey } from "@perdure/protocol";
import type { Clock } from "../core/ports/clock.ts";
import type { Log } from "../core/ports/log.ts";
import type { ApiKeys } from "./api-keys.ts";
import { anonymous, assertMayCall, localPrincipal, principalOf } from "./principal.ts";
import type { Principal } from "./principal.ts";
import type { Reach } from "./reach.ts";
import { RefusalLimit } from "./refusal-limit.ts";

declare module "fastify" {
  interface FastifyRequest {
    principal: Principal;
  }
}

/** Who a request is from. @throws `unauthenticated`, `too_many` */
export type Door = (request: IncomingMessage) => Promise<Principal>;

export const socketDoor: Door = () => Promise.resolve(localPrincipal);

export interface KeyDoorOptions {
  readonly keys: ApiKeys;
  readonly clock: Clock;
  readonly log: Log;
}

/** By API key: `Authorization: Bearer …`, `X-API-Key: e2b_…`, or of a browser's WebSocket as a subprotocol. */
export function createKeyDoor({ keys, clock, log }: KeyDoorOptions): Door {
  const limit = new RefusalLimit();
  return async (request) => {
    const token = tokenOf(request);
    if (token === null) return anonymous;
    const found = await keys.find(token, request.socket);
    if (typeof found === "object") return principalOf(found);
    const address = request.socket.remoteAddress ?? "";
    const waitMs = limit.note(address, clock.nowMs());
    if (waitMs > 0) {
      throw new PerdureError("too_many", "Too many keys from this address were refused", {
        hint: "Wait before you try again, with a key that is valid.",
        details: { retryAfterMs: waitMs },
      });
    }
    log("warn", "A key was refused", { address, reason: found });
    throw unauthenticated("Cannot tell who asks: the key is not valid");
  };
}

function tokenOf(request: IncomingMessage): string | null {
  const { authorization } = request.headers;
  if (authorization !== undefined) return /^Bearer +(\S+) *$/i.exec(authorization)?.[1] ?? "";
  const apiKey = request.headers["x-api-key"];
  if (apiKey !== undefined) return typeof apiKey === "string" ? tokenOfE2bKey(apiKey) : "";
  return keyOfProtocols(request.headers["sec-websocket-protocol"]);
}

function unauthenticated(message: string): PerdureError {
  return new PerdureError("unauthenticated", message, {
    hint: 'Send "authorization: Bearer KEY" with a key that "perdure key create" made on the daemon\'s host.',
  });
}

/** Gives every request its principal. */
export function guard(server: FastifyInstance, door: Door, reach: Reach): void {
  server.decorateRequest("principal");
  server.addHook("onRequest", async (request) => {
    const principal = await door(request.raw);
    request.principal = principal;
    const { entry } = request.routeOptions.config;
    if (principal === anonymous && entry?.scope !== "none") {
      throw unauthenticated("Cannot tell who asks: no key was sent");
    }
    if (entry === undefined) return;
    assertMayCall(principal, entry);
    const agent = agentOf(request);
    if (agent !== null) await reach.assert(principal, agent);
  });
}

function agentOf({ params }: FastifyRequest): string | null {
  const { agent } = params as { agent?: unknown };
  return typeof agent === "string" ? agent : null;
}
