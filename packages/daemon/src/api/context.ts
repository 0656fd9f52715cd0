/** What the routes work with. */
import type { AgentId } from "@perdure/protocol";
import type { Commands } from "../core/command.ts";
import type { EventLog } from "../core/event-log.ts";
import type { ImageCommands } from "../core/image-verb.ts";
import type { ApiKeys } from "./api-keys.ts";
import type { Reach } from "./reach.ts";
import type { Upgrades } from "./upgrade.ts";

export interface RouteContext {
  readonly commands: Commands;
  readonly events: EventLog;
  readonly images: ImageCommands;
  readonly keys: ApiKeys;
  readonly reach: Reach;
  /** Aborts when the server begins to close: streams end then. */
  readonly closing: AbortSignal;
  readonly upgrades: Upgrades;
  /** Of a port's preview host; null where the daemon does not listen on TCP. */
  readonly previewUrl: (agent: AgentId, port: number) => string | null;
  /** Between pings of a WebSocket, milliseconds. */
  readonly pingMs: number;
}
