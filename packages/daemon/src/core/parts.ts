/** The ports that the engine stands on, and the hook that tests use. Only daemon.ts fills this in. */
import type { Agent } from "./agent.ts";
import type { ConnectionLog } from "./connection-log.ts";
import type { HotChildren } from "./hot-children.ts";
import type { ImageHolds } from "./image-hold.ts";
import type { CheckpointStore } from "./ports/checkpoint-store.ts";
import type { Clock } from "./ports/clock.ts";
import type { Egress } from "./ports/egress.ts";
import type { GuestLinks } from "./ports/guest-link.ts";
import type { IdentitySource } from "./ports/identity-source.ts";
import type { ImageSource } from "./ports/image-source.ts";
import type { Log } from "./ports/log.ts";
import type { StateStore } from "./ports/state-store.ts";
import type { Substrate } from "./ports/substrate.ts";
import type { TemplateStore } from "./ports/template-store.ts";
import type { SparePlan } from "./spare-plan.ts";
import type { StepHook } from "./step.ts";
import type { Turns } from "./turns.ts";

export interface Parts {
  readonly clock: Clock;
  readonly state: StateStore;
  readonly checkpoints: CheckpointStore;
  readonly templates: TemplateStore;
  readonly substrate: Substrate;
  readonly spares: SparePlan;
  /** Agents that are raised at the same time. */
  readonly raises: Turns;
  readonly hotChildren: HotChildren;
  readonly links: GuestLinks;
  readonly egress: Egress;
  readonly connections: ConnectionLog;
  readonly images: ImageSource;
  readonly imageHolds: ImageHolds;
  readonly identities: IdentitySource;
  /**
   * Delta beyond which a sleep writes a base of the agent's own instead of packs; Infinity: never. Such
   * a base is memory in the clear on the host's disk.
   */
  readonly ownBaseAboveBytes: () => number;
  /** For agents whose create says nothing else. */
  readonly defaults: Pick<Agent, "idleAfterMs" | "checkpointEveryMs">;
  readonly step: StepHook;
  readonly log: Log;
}
