/** Headers on their way through: those of one connection stay there (RFC 9110, 7.6.1), and what is ours as well. */
import type { IncomingMessage } from "node:http";
import { TLSSocket } from "node:tls";
import { TOKEN_COOKIE, withoutCredentials } from "./visitor.ts";

const ofConnection = new Set([
  ...["connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"],
  ...["te", "trailer", "transfer-encoding", "upgrade"],
]);
/** Of a visitor: answered here, or said by us alone. */
const ofVisitor = new Set([
  ...[
    "expect",
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
  ],
]);

type Pair = readonly [name: string, value: string];

function* pairs(raw: readonly string[]): Generator<Pair> {
  for (let at = 0; at + 1 < raw.length; at += 2) yield [raw[at] ?? "", raw[at + 1] ?? ""];
}

/** Those that `connection` names besides. */
function named({ headers: { connection = "" } }: IncomingMessage): ReadonlySet<string> {
  return new Set(connection.split(",").map((name) => name.trim().toLowerCase()));
}

/** For the program inside, as a flat list. `upgrades`: it is asked for a WebSocket. */
export function requestHeaders(request: IncomingMessage, upgrades: boolean): string[] {
  const { headers, socket } = request;
  const also = named(request);
  const list: string[] = [];
  for (const [name, value] of pairs(request.rawHeaders)) {
    const lower = name.toLowerCase();
    if (ofConnection.has(lower) || ofVisitor.has(lower) || lower === "host") continue;
    // Who named this as of the connection would have the body taken for another request.
    if (also.has(lower) && lower !== "content-length") continue;
    const left = withoutCredentials(lower, value);
    if (left !== null) list.push(name, left);
  }
  // Once, whatever was sent.
  list.push("Host", headers.host ?? "");
  list.push("X-Forwarded-For", socket.remoteAddress ?? "");
  list.push("X-Forwarded-Host", headers.host ?? "");
  list.push("X-Forwarded-Proto", socket instanceof TLSSocket ? "https" : "http");
  if (headers["transfer-encoding"] !== undefined) list.push("Transfer-Encoding", "chunked");
  if (upgrades) list.push("Connection", "Upgrade", "Upgrade", "websocket");
  return list;
}

/** For the visitor, as a flat list. */
export function answerHeaders(answer: IncomingMessage): string[] {
  const also = named(answer);
  const list: string[] = [];
  for (const [name, value] of pairs(answer.rawHeaders)) {
    const lower = name.toLowerCase();
    if (ofConnection.has(lower) || also.has(lower)) continue;
    const left = lower === "set-cookie" ? ownCookie(value) : value;
    if (left !== null) list.push(name, left);
  }
  return list;
}

/** A cookie is its host's alone: one program sets none for another's, and none that lets in. */
function ownCookie(value: string): string | null {
  if (value.trimStart().startsWith(`${TOKEN_COOKIE}=`)) return null;
  const parts = value.split(";");
  return parts.filter((part, at) => at === 0 || !/^\s*domain\s*(=|$)/i.test(part)).join(";");
}
