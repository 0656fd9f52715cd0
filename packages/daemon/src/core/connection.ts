/** A connection to elsewhere as the state store knows it (I11). */
import type { AgentId, ConnectionView } from "@perdure/protocol";

export interface ConnectionRow extends ConnectionView {
  readonly agent: AgentId;
}

/** What of an agent's connections nobody here knows the effects of, and is not undone by going back. */
export interface UnmediatedSince {
  readonly count: number;
  /** The one that ended last, or is open. */
  readonly last: ConnectionRow | null;
}

export function connectionView(row: ConnectionRow): ConnectionView {
  const { agent: _, ...view } = row;
  return view;
}

/** `api.example.com:443`, or by address. */
export function placeOf({
  name,
  address,
  port,
}: Pick<ConnectionView, "name" | "address" | "port">): string {
  const host = name ?? address ?? "?";
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}
