/**
 * What a request over TCP is aimed at: our own API, E2B's, or a port of an agent. The one place that looks at hosts
 * and at the headers that name a sandbox.
 *
 * A preview host is the origin of one program's pages alone, so it says more than a header, which a page can send.
 */
import type { IncomingMessage } from "node:http";
import type { AgentId } from "@perdure/protocol";
import { isE2bPath } from "./e2b/e2b-table.ts";
import { agentOf, sandboxIdOf } from "./e2b/sandbox-id.ts";
import { nameOfHost, portOfHost } from "./port-host.ts";

/** The port of a sandbox on which its services are. */
export const SERVICE_PORT = 49_983;

const NAME_HEADER = "e2b-sandbox-id";
const PORT_HEADER = "e2b-sandbox-port";

/** A program inside. */
export interface PortAim {
  readonly kind: "port";
  /** Null: what was sent is nobody's id. */
  readonly agent: AgentId | null;
  /** 0 where it is none. */
  readonly port: number;
  /** Where headers say it, as clients of E2B do: the sandbox as it was sent. Null: the host says it. */
  readonly sandbox: string | null;
}

export interface ServiceAim {
  readonly kind: "services";
  /** What was sent: perhaps nobody's id. */
  readonly sandbox: string;
}

export type Aim =
  | { readonly kind: "native" }
  | { readonly kind: "e2b" }
  | ServiceAim
  /** A signed path of a file: the sandbox is the one whose signature it is. */
  | { readonly kind: "signed" }
  | PortAim;

/** @param domain of all preview hosts, in lower case; below it is also E2B's API, at `api.` */
export function aimOf(
  { headers, url = "/" }: Pick<IncomingMessage, "headers" | "url">,
  domain: string,
): Aim {
  const target = portOfHost(headers.host, domain);
  if (target !== null) {
    const { agent, port } = target;
    if (port === SERVICE_PORT) return { kind: "services", sandbox: sandboxIdOf(agent) };
    return { kind: "port", agent, port, sandbox: null };
  }
  const sandbox = headers[NAME_HEADER];
  if (typeof sandbox === "string") {
    const port = portOf(headers[PORT_HEADER]);
    if (port === SERVICE_PORT) return { kind: "services", sandbox };
    return { kind: "port", agent: agentOf(sandbox), port, sandbox };
  }
  const [path = "", query = ""] = url.split("?", 2);
  if (path === "/files" && /(^|&)signature=/.test(query)) return { kind: "signed" };
  const isE2b = nameOfHost(headers.host) === `api.${domain}` || isE2bPath(path);
  return isE2b ? { kind: "e2b" } : { kind: "native" };
}

function portOf(text: string | string[] | undefined): number {
  if (text === undefined) return SERVICE_PORT;
  const port = typeof text === "string" && /^[0-9]{1,5}$/.test(text) ? Number(text) : 0;
  return port <= 65_535 ? port : 0;
}
