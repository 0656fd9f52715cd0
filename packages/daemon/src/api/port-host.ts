/** Which port of which agent a request is for: the host that it was sent to says it. */
import type { AgentId } from "@perdure/protocol";
import { portOfLabel } from "@perdure/protocol";

export interface PortTarget {
  readonly agent: AgentId;
  readonly port: number;
}

/**
 * @param host as a Host header has it, with or without a port
 * @param domain of all preview hosts, in lower case
 * @returns null where it is no preview host
 */
export function portOfHost(host: string | undefined, domain: string): PortTarget | null {
  const name = nameOfHost(host);
  return name.endsWith(`.${domain}`) ? portOfLabel(name.slice(0, -domain.length - 1)) : null;
}

/** In lower case, without a port and the dot of the root; empty where there is none. */
export function nameOfHost(host: string | undefined): string {
  return (host ?? "")
    .toLowerCase()
    .replace(/:[0-9]*$/, "")
    .replace(/\.$/, "");
}
