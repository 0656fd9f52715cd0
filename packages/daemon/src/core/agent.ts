/**
 * The agent as a row: plain saved state. Which verb is legal in which state is in `legality.ts`; what
 * a verb does is in `engine.ts`.
 */
import type {
  AgentId,
  AgentState,
  AgentView,
  CheckpointId,
  Digest,
  Failure,
  LayerId,
  MachineShape,
  OnCrash,
  Route,
  WakeReport,
} from "@perdure/protocol";
import type { MachineRecord } from "./ports/substrate.ts";

/** The newest checkpoint, and whether an agent was already let out from it (I3). */
export interface Head {
  readonly checkpoint: CheckpointId;
  readonly continued: boolean;
}

/** The machine of the current generation, from before it is used until it is gone. */
export interface Lease {
  readonly machine: MachineRecord;
  readonly route: Route;
  /** Layers below the top, lowest first, and the top that this machine writes. */
  readonly lowerLayers: readonly LayerId[];
  readonly topLayer: LayerId;
  /** Memory base the process has mapped; to build its spec again at adoption. */
  readonly base: { readonly kind: "template" | "own" | "zero"; readonly digest: Digest | null };
  /** Recorded before the thaw is sent: from then on the head counts as continued. */
  readonly letOut: boolean;
  /** The state to fall back to if the attempt ends before the agent is let out. */
  readonly fallback: "creating" | "asleep" | "stopped" | "failed";
}

export interface Agent {
  readonly id: AgentId;
  readonly name: string;
  readonly tenant: string;
  /** +1 with every stored change. */
  readonly revision: number;
  readonly state: AgentState;
  readonly paused: string | null;
  readonly generation: number;
  readonly image: { readonly id: Digest; readonly name: string };
  /** Key of the template it was created from. */
  readonly template: Digest;
  readonly shape: MachineShape;
  readonly onCrash: OnCrash;
  readonly head: Head | null;
  readonly lease: Lease | null;
  /** Newest disk while there is no machine: what a cold start boots. Null before the first. */
  readonly disk: readonly LayerId[] | null;
  readonly failure: Failure | null;
  readonly report: WakeReport | null;
  readonly storedBytes: number;
  /** When the guest rebooted itself lately, milliseconds since the epoch; bounds reset loops. */
  readonly resetsAtMs: readonly number[];
  readonly createdAtMs: number;
  readonly changedAtMs: number;
}

export function agentView(agent: Agent): AgentView {
  return {
    id: agent.id,
    name: agent.name,
    tenant: agent.tenant,
    state: agent.state,
    paused: agent.paused,
    generation: agent.generation,
    image: agent.image,
    shape: agent.shape,
    onCrash: agent.onCrash,
    head: agent.head?.checkpoint ?? null,
    storedBytes: agent.storedBytes,
    failure: agent.failure,
    createdAtMs: agent.createdAtMs,
    changedAtMs: agent.changedAtMs,
  };
}
