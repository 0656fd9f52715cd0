/**
 * What a request over TCP is aimed at: our own API, E2B's, or a port of a sandbox. The one place that looks at
 * hosts and at the headers that name a sandbox.
 */
import type { IncomingMessage } from "node:http";

/** The port of a sandbox on which its services are. */
export const SERVICE_PORT = 49_983;

export type Aim =
  | { readonly kind: "native" }
  | { readonly kind: "e2b" }
  /** `sandbox` is what was sent: perhaps nobody's id. */
  | { readonly kind: "sandbox"; readonly sandbox: string; readonly port: number }
  /** A signed path of a file: the sandbox is the one whose signature it is. */
  | { readonly kind: "signed" };

const HOST = /^([0-9]{1,5})-([0-9a-z]{26})\./;

/** @param isE2b whether a path is one of E2B's API */
export function aimOf(
  { headers, url = "/" }: Pick<IncomingMessage, "headers" | "url">,
  isE2b: (path: string) => boolean,
): Aim {
  const named = headers["e2b-sandbox-id"];
  if (typeof named === "string") {
    const port = headers["e2b-sandbox-port"];
    return { kind: "sandbox", sandbox: named, port: portOf(port) };
  }
  const [, port, sandbox = ""] = HOST.exec(headers.host?.toLowerCase() ?? "") ?? [];
  if (port !== undefined) return { kind: "sandbox", sandbox, port: portOf(port) };
  const [path = "", query = ""] = url.split("?", 2);
  if (path === "/files" && /(^|&)signature=/.test(query)) return { kind: "signed" };
  return isE2b(path) ? { kind: "e2b" } : { kind: "native" };
}

/** 0 where it is none. */
function portOf(text: string | string[] | undefined): number {
  if (text === undefined) return SERVICE_PORT;
  const port = typeof text === "string" && /^[0-9]{1,5}$/.test(text) ? Number(text) : 0;
  return port <= 65_535 ? port : 0;
}
