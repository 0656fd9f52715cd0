/**
 * Events: what a stored change of an agent is called in the event log. Pure: the same change always has
 * the same events, and they are stored in the transaction of the change, so that the log says neither
 * more nor less than what happened.
 */
import type { EventKind } from "@perdure/protocol";
import type { Agent } from "./agent.ts";
import type { NewEvent, StateChange } from "./ports/state-store.ts";
import { sizeWanted } from "./size.ts";

type Data = NewEvent["data"];

/** Of what is free text, so much goes into an event. */
const TEXT_LENGTH_MAX = 500;

/**
 * @param before null where the agent is new
 * @param after null where its row is deleted
 * @param also what is stored with it
 */
export function eventsOf(
  before: Agent | null,
  after: Agent | null,
  also: readonly StateChange[],
  atMs: number,
): readonly NewEvent[] {
  const agent = after ?? before;
  if (agent === null) return [];
  const { id, tenant, name, generation } = agent;
  return [
    ...(before === null ? createdOf(agent) : changesOf(before, after)),
    ...also.flatMap(checkpointEvents),
  ].map(([kind, data]) => ({ atMs, kind, agent: id, tenant, name, generation, data }));
}

/** `eventsOf` as changes to be committed along. */
export function recorded(events: readonly NewEvent[]): readonly StateChange[] {
  return events.map((event) => ({ kind: "append-event", event }));
}

type Told = readonly [kind: EventKind, data: Data];

function createdOf({ image, shape, state }: Agent): Told[] {
  const { memoryBytes, cpus, diskBytes } = shape;
  return [["created", { state, image: image.name, memoryBytes, cpus, diskBytes }]];
}

function changesOf(before: Agent, after: Agent | null): Told[] {
  if (after === null || after.state === "removed") {
    return before.state === "removed" ? [] : [["removed", {}]];
  }
  return [
    ...stateOf(before, after),
    ...letOutOf(before, after),
    ...pausedOf(before, after),
    ...settingsOf(before, after),
  ];
}

function stateOf(before: Agent, after: Agent): Told[] {
  const { state, failure, quarantine } = after;
  if (state === before.state) return [];
  const changed: Told = ["state", { from: before.state, to: state }];
  if (state === "failed" && failure !== null) {
    const { reason, message, wayBack } = failure;
    return [changed, ["failed", { reason, message: short(message), wayBack: short(wayBack) }]];
  }
  if (state !== "quarantined") return [changed];
  return [changed, ["quarantined", { reason: short(quarantine?.reason ?? "") }]];
}

function letOutOf(before: Agent, { lease, report, head }: Agent): Told[] {
  if (lease?.letOut !== true) return [];
  if (before.lease?.letOut === true && before.lease.machine.id === lease.machine.id) return [];
  const verdict = report?.verdict ?? null;
  return [["let-out", { route: lease.route, verdict, checkpoint: head?.checkpoint ?? null }]];
}

function pausedOf(before: Agent, { paused }: Agent): Told[] {
  if (paused === before.paused) return [];
  return paused === null ? [["resumed", {}]] : [["paused", { reason: short(paused) }]];
}

const settings = [
  "onCrash",
  "idleAfterMs",
  "checkpointEveryMs",
  "wakeAtMs",
  "wakeOnTraffic",
  "portsPublic",
] as const;

function settingsOf(before: Agent, after: Agent): Told[] {
  const changed = settings.filter((name) => before[name] !== after[name]);
  const data = {
    ...Object.fromEntries(changed.map((name) => [name, after[name] ?? null])),
    ...endChanged(before, after),
    ...sizeChanged(before, after),
    ...egressChanged(before, after),
  };
  return Object.keys(data).length === 0 ? [] : [["configured", data]];
}

/** How long until it comes, and what then; when it comes changes with each wake. */
function endChanged({ end: before }: Agent, { end: after }: Agent): Data {
  if (before?.afterMs === after?.afterMs && before?.then === after?.then) return {};
  return { endAfterMs: after?.afterMs ?? null, atEnd: after?.then ?? null };
}

/** By how much it allows; the whole of it is the agent's. */
function egressChanged({ egress: before }: Agent, { egress: now }: Agent): Data {
  if (now === undefined || JSON.stringify(now) === JSON.stringify(before)) return {};
  return { egressRules: now.rules.length, egressOtherwise: now.otherwise };
}

/** What its owner wants it to be: that it is so is told by no event of its own. */
function sizeChanged(before: Agent, after: Agent): Data {
  const [then, now] = [before, after].map((agent) => ({
    ...sizeWanted(agent),
    diskBytes: agent.shape.diskBytes,
  }));
  if (then === undefined || now === undefined) return {};
  const names = ["memoryBytes", "cpus", "diskBytes"] as const;
  return Object.fromEntries(
    names.filter((name) => then[name] !== now[name]).map((name) => [name, now[name]]),
  );
}

function checkpointEvents(change: StateChange): Told[] {
  switch (change.kind) {
    case "insert-checkpoint": {
      const { id, kind, name, memory, addedBytes } = change.checkpoint;
      return [["checkpoint", { checkpoint: id, of: kind, name, memory, addedBytes }]];
    }
    case "update-checkpoint": {
      const { id, name } = change.checkpoint;
      return [["kept", { checkpoint: id, name }]];
    }
    case "delete-checkpoint":
      return [["dropped", { checkpoint: change.id }]];
    default:
      return [];
  }
}

function short(text: string): string {
  return text.slice(0, TEXT_LENGTH_MAX);
}
