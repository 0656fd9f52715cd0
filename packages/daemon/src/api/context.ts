/** What the routes work with. */
import type { Commands } from "../core/command.ts";

export interface RouteContext {
  readonly commands: Commands;
  /** Aborts when the server begins to close: streams end then. */
  readonly closing: AbortSignal;
}
