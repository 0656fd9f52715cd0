/** What the routes work with. */
import type { Commands } from "../core/command.ts";

/** Who owns what is reached through the daemon's own socket. */
export const LOCAL_TENANT = "default";

export interface RouteContext {
  readonly commands: Commands;
  /** Aborts when the server begins to close: streams end then. */
  readonly closing: AbortSignal;
}
