/**
 * Who may visit a port, and what of a request says so. A port is private unless its owner made it public: then a
 * visitor shows the port's token, or an API key with scope `use` that reaches the agent.
 *
 * - `x-perdure-token: TOKEN` or `KEY`, or `authorization: Bearer KEY` (only what is a key of ours);
 * - `?perdure_token=TOKEN` once: it becomes a cookie of that host alone, and the address loses it;
 * - a browser's WebSocket may send its key as a subprotocol;
 * - clients of E2B send the agent's traffic token, of all its ports, as `e2b-traffic-access-token`.
 *
 * None of it is passed on to the program inside.
 */
import { createHash, timingSafeEqual } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { keyOfProtocols, PerdureError, scopes } from "@perdure/protocol";
import { isPublic } from "../../core/agent.ts";
import type { Agent } from "../../core/agent.ts";
import type { Clock } from "../../core/ports/clock.ts";
import type { ApiKeys } from "../api-keys.ts";
import type { AccessTokens } from "../e2b/access-token.ts";
import { principalOf } from "../principal.ts";
import type { Reach } from "../reach.ts";
import type { RefusalLimit } from "../refusal-limit.ts";

export const TOKEN_HEADER = "x-perdure-token";
/** E2B's. */
export const TRAFFIC_HEADER = "e2b-traffic-access-token";
export const TOKEN_QUERY = "perdure_token";
export const TOKEN_COOKIE = "perdure_token";
const KEY_START = "pdk_";
const KEY_PROTOCOL_START = "perdure.key.";

export interface Doorkeeper {
  readonly tokens: AccessTokens;
  readonly keys: ApiKeys;
  readonly reach: Reach;
  readonly clock: Clock;
  readonly limit: RefusalLimit;
}

/** `id`: for the log. `fromQuery`: the token that came in the address. */
export interface Visitor {
  readonly id: string;
  readonly fromQuery: string | null;
}

/**
 * @param agent null: there is none; whoever may not visit it is told the same as of one that is there
 * @throws `unauthenticated`, `forbidden`, `agent_not_found`, `too_many`
 */
export async function admit(
  request: IncomingMessage,
  agent: Agent | null,
  port: number,
  { keys, tokens, reach, clock, limit }: Doorkeeper,
): Promise<Visitor> {
  const facts = agent?.ports?.[port];
  if (agent !== null && isPublic(agent, port)) return { id: "public", fromQuery: null };
  const { [TRAFFIC_HEADER]: sent } = request.headers;
  const traffic = typeof sent === "string" ? sent : null;
  if (agent !== null && traffic !== null && tokens.isRight(agent.id, "traffic", traffic)) {
    return { id: "token", fromQuery: null };
  }
  const { header, query, cookie } = credentialsOf(request);
  for (const token of [header, query, cookie]) {
    if (token === null || token.startsWith(KEY_START)) continue;
    if (facts !== undefined && isSame(token, facts.token)) {
      return { id: "token", fromQuery: token === query ? query : null };
    }
  }
  if (header?.startsWith(KEY_START) !== true) {
    throw unauthenticated(header ?? query ?? cookie ?? traffic);
  }
  const key = await keys.find(header, request.socket);
  if (typeof key !== "object") {
    const waitMs = limit.note(request.socket.remoteAddress ?? "", clock.nowMs());
    if (waitMs > 0) {
      throw new PerdureError("too_many", "Too many keys from this address were refused", {
        details: { retryAfterMs: waitMs },
      });
    }
    throw unauthenticated(header);
  }
  const principal = principalOf(key);
  if (scopes.indexOf(principal.scope) < scopes.indexOf("use")) {
    throw new PerdureError("forbidden", 'Cannot visit the port: the key needs scope "use"');
  }
  if (agent?.tenant !== principal.tenant) throw notFound();
  await reach.assert(principal, agent.id).catch(() => {
    throw notFound();
  });
  return { id: principal.id, fromQuery: null };
}

function notFound(): PerdureError {
  return new PerdureError("agent_not_found", "No agent has the id that this host names");
}

function unauthenticated(sent: string | null): PerdureError {
  const why = sent === null ? "it is private, and no token was sent" : "the token is not valid";
  return new PerdureError("unauthenticated", `Cannot visit the port: ${why}`, {
    hint: `Send the port's token or an API key as "${TOKEN_HEADER}", or open the page once with "?${TOKEN_QUERY}=TOKEN"; "perdure port AGENT PORT" shows the token.`,
  });
}

interface Credentials {
  readonly header: string | null;
  readonly query: string | null;
  readonly cookie: string | null;
}

function credentialsOf({ headers, url = "/" }: IncomingMessage): Credentials {
  const own = headers[TOKEN_HEADER];
  const bearer = /^Bearer +(pdk_\S+) *$/i.exec(headers.authorization ?? "")?.[1];
  const protocol = keyOfProtocols(headers["sec-websocket-protocol"]);
  const cookie = (headers.cookie ?? "")
    .split(";")
    .map((part) => part.trim())
    .find((part) => part.startsWith(`${TOKEN_COOKIE}=`));
  return {
    header: (typeof own === "string" ? own : undefined) ?? bearer ?? protocol,
    query: queryOf(url).get(TOKEN_QUERY),
    cookie: cookie?.slice(TOKEN_COOKIE.length + 1) ?? null,
  };
}

function queryOf(url: string): URLSearchParams {
  const at = url.indexOf("?");
  return new URLSearchParams(at < 0 ? "" : url.slice(at + 1));
}

/** The address without a token; every other byte of it as it was. */
export function withoutToken(url: string): string {
  const at = url.indexOf("?");
  if (at < 0) return url;
  const left = url
    .slice(at + 1)
    .split("&")
    .filter((part) => part !== TOKEN_QUERY && !part.startsWith(`${TOKEN_QUERY}=`));
  return left.length === 0 ? url.slice(0, at) : `${url.slice(0, at)}?${left.join("&")}`;
}

/** A header of a visitor without what lets it in; null: nothing is left of it. */
export function withoutCredentials(name: string, value: string): string | null {
  switch (name) {
    case TOKEN_HEADER:
    case TRAFFIC_HEADER:
      return null;
    case "authorization":
      return /^Bearer +pdk_/i.test(value) ? null : value;
    case "cookie":
      return without(value, ";", (part) => part.startsWith(`${TOKEN_COOKIE}=`));
    case "sec-websocket-protocol":
      return without(value, ",", (part) => part.startsWith(KEY_PROTOCOL_START));
    default:
      return value;
  }
}

function without(value: string, by: string, isOurs: (part: string) => boolean): string | null {
  const parts = value.split(by).map((part) => part.trim());
  if (!parts.some(isOurs)) return value;
  const left = parts.filter((part) => part !== "" && !isOurs(part));
  return left.length === 0 ? null : left.join(`${by} `);
}

function isSame(one: string, two: string): boolean {
  const digest = (text: string): Buffer => createHash("sha256").update(text).digest();
  return timingSafeEqual(digest(one), digest(two));
}
