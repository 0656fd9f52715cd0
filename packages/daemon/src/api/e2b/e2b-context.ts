/** What E2B's routes and services work with. */
import type { Commands } from "../../core/command.ts";
import type { Clock } from "../../core/ports/clock.ts";
import type { StateStore } from "../../core/ports/state-store.ts";
import type { Reach } from "../reach.ts";
import type { AccessTokens } from "./access-token.ts";

export interface E2bContext {
  readonly commands: Commands;
  readonly clock: Clock;
  /** Only to find whose agent an id is. */
  readonly state: Pick<StateStore, "agent" | "agentIds">;
  readonly reach: Reach;
  readonly tokens: AccessTokens;
  /** Where files are kept that come without their length, until they are whole. */
  readonly spoolDir: string;
  /** Behind `PORT-ID.` of the hosts of sandboxes' ports; null: the daemon does not listen yet. */
  readonly sandboxDomain: () => string | null;
  /** Aborts when the server begins to close. */
  readonly closing: AbortSignal;
}
