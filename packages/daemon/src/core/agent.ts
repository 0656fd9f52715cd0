/**
 * The agent as a row: plain saved state. Which verb is legal in which state is in `legality.ts`; what
 * a verb does is in `engine.ts`.
 */
import {
  closedEgress,
  type AgentId,
  type AgentState,
  type AgentView,
  type CheckpointId,
  type Digest,
  type EgressPolicy,
  type End,
  type Failure,
  type Hold,
  type LayerId,
  type MachineShape,
  type OnCrash,
  type Route,
  type WakeReport,
} from "@perdure/protocol";
import type { MachineRecord } from "./ports/substrate.ts";
import { grownBytes, pendingOf, type Size } from "./size.ts";

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

/** What its owner said of a TCP port inside. */
export interface PortFacts {
  /** Whether everybody may visit it through its preview host. */
  readonly public: boolean;
  /** Whoever has it may, too. */
  readonly token: string;
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
  /** Of its machine, or of the checkpoint it sleeps in; `diskBytes` of every layer to come. */
  readonly shape: MachineShape;
  /** What its next cold start gives it; absent or null: what it has. */
  readonly sizeWanted?: Size | null;
  /** How far the file system inside reaches; absent or null: all of its disk. */
  readonly grownBytes?: number | null;
  readonly onCrash: OnCrash;
  /** Whether the image's program is started by itself; absent: as the image says. */
  readonly start?: boolean;
  /** Put to sleep after this long without anything that needs it awake; null: never. */
  readonly idleAfterMs: number | null;
  /** A checkpoint is taken this often while something changes; null: never. */
  readonly checkpointEveryMs: number | null;
  /** Those that have ended among them, until the next change. */
  readonly holds: readonly Hold[];
  /** The number of the newest hold ever: none is given twice, so nobody ends another's. Absent: none was made. */
  readonly holdsMade?: number;
  /** When its owner wants it woken. */
  readonly wakeAtMs: number | null;
  /** While it sleeps: when the first program inside that waits for a time is due. */
  readonly waitDueMs: number | null;
  /** Who put it to sleep last: its owner, itself by being idle, or the end that its owner had set. */
  readonly asleepBecause: "asked" | "idle" | "end" | null;
  /** Why it is quarantined, and the state that it is released to. */
  readonly quarantine: {
    readonly reason: string;
    readonly from: "asleep" | "stopped" | "failed";
  } | null;
  /** By port; absent: nothing was said of any. Its forks have none of them. */
  readonly ports?: Readonly<Record<string, PortFacts>>;
  /** When it is put to sleep or removed while it is awake; absent or null: by nobody's word. */
  readonly end?: End | null;
  /** Whether everybody may visit a port that `ports` says nothing of; absent: false. Its forks do not have it. */
  readonly portsPublic?: boolean;
  /** Absent: true. */
  readonly wakeOnTraffic?: boolean;
  /** Absent: none. */
  readonly labels?: Readonly<Record<string, string>>;
  /** Of every program that a call starts; absent: none. */
  readonly env?: Readonly<Record<string, string>>;
  /** Of connections from inside to elsewhere; absent: nothing gets out. Its forks get none of it. */
  readonly egress?: EgressPolicy;
  readonly head: Head | null;
  readonly lease: Lease | null;
  /** Newest disk while there is no machine: what a cold start boots. Null before the first. */
  readonly disk: readonly LayerId[] | null;
  readonly failure: Failure | null;
  readonly report: WakeReport | null;
  /** It came from a file and was never let out: what it holds is another computer's until then (I3). */
  readonly identityDue?: boolean;
  readonly storedBytes: number;
  /** When the guest rebooted itself lately, milliseconds since the epoch; bounds reset loops. */
  readonly resetsAtMs: readonly number[];
  readonly createdAtMs: number;
  readonly changedAtMs: number;
}

/** Whether everybody may visit the port. */
export function isPublic({ ports = {}, portsPublic = false }: Agent, port: number): boolean {
  const facts: PortFacts | undefined = ports[port];
  return facts?.public ?? portsPublic;
}

/** When a sleeping agent is woken by itself; null: it is not. */
export function wakeDueMs({ state, wakeAtMs, waitDueMs }: Agent): number | null {
  if (state !== "asleep" || (wakeAtMs === null && waitDueMs === null)) return null;
  return Math.min(wakeAtMs ?? Infinity, waitDueMs ?? Infinity);
}

/** When an agent that runs is put to sleep or removed by itself; null: it is not. */
export function endDueMs({ state, end }: Agent): number | null {
  if (end == null) return null;
  // One that failed has nothing that could be put to sleep.
  const runs = state === "awake" || (state === "failed" && end.then === "remove");
  return runs ? end.atMs : null;
}

export function hasLabels({ labels = {} }: Agent, all: Readonly<Record<string, string>>): boolean {
  return Object.entries(all).every(
    ([key, value]) => Object.hasOwn(labels, key) && labels[key] === value,
  );
}

/** When the alarm is to act on the agent; null: never. */
export function dueMs(agent: Agent): number | null {
  return wakeDueMs(agent) ?? endDueMs(agent);
}

/** The end of an agent that is let out now: a new one, or one whose end came before, begins anew. */
export function begunEnd({ end = null, report }: Agent, nowMs: number): End | null {
  if (end === null) return null;
  const isOver = report === null || end.atMs === null || end.atMs <= nowMs;
  return isOver ? { ...end, atMs: nowMs + end.afterMs } : end;
}

/** @param nowMs holds that have ended by then are left out */
export function agentView(agent: Agent, nowMs: number): AgentView {
  return {
    id: agent.id,
    name: agent.name,
    tenant: agent.tenant,
    state: agent.state,
    paused: agent.paused,
    generation: agent.generation,
    image: agent.image,
    shape: { ...agent.shape, diskBytes: grownBytes(agent) },
    pending: pendingOf(agent),
    onCrash: agent.onCrash,
    idleAfterMs: agent.idleAfterMs,
    checkpointEveryMs: agent.checkpointEveryMs,
    holds: agent.holds.filter(({ untilMs }) => untilMs > nowMs),
    wakeAtMs: agent.wakeAtMs,
    waitDueMs: agent.waitDueMs,
    publicPorts: Object.entries(agent.ports ?? {})
      .filter(([, facts]) => facts.public)
      .map(([port]) => Number(port)),
    portsPublic: agent.portsPublic ?? false,
    end: agent.end ?? null,
    wakeOnTraffic: agent.wakeOnTraffic ?? true,
    labels: { ...agent.labels },
    egress: {
      rules: agent.egress?.rules.length ?? 0,
      otherwise: agent.egress?.otherwise ?? closedEgress.otherwise,
    },
    head: agent.head?.checkpoint ?? null,
    storedBytes: agent.storedBytes,
    failure: agent.failure,
    createdAtMs: agent.createdAtMs,
    changedAtMs: agent.changedAtMs,
  };
}
