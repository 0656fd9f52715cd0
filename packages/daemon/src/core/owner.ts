/**
 * What its owner says of an agent besides when it rests: labels, variables of its programs, an end, and whether
 * traffic wakes it. A fork has them from its origin, and its end begins when it is let out. Who may visit ports it does
 * not have from there.
 */
import type { End, EndWish } from "@perdure/protocol";
import type { Agent } from "./agent.ts";
import type { OwnerWish } from "./command.ts";

type OwnerFacts = Pick<Agent, "end" | "wakeOnTraffic" | "portsPublic" | "labels" | "env">;

/** Of a new agent: what is wished for, else what its origin has. */
export function ownerFacts(origin: OwnerFacts | null, wish: OwnerWish): OwnerFacts {
  const before = origin?.end ?? null;
  const end = wish.end === undefined ? before : wish.end;
  return {
    end: end === null ? null : { ...lengthOf(end, before), atMs: null },
    wakeOnTraffic: wish.wakeOnTraffic ?? origin?.wakeOnTraffic ?? true,
    portsPublic: wish.portsPublic ?? false,
    labels: wish.labels ?? origin?.labels ?? {},
    env: wish.env ?? origin?.env ?? {},
  };
}

/** What changes of an agent that is there; what is absent stays. */
export function ownerChanges(agent: Agent, wish: OwnerWish, nowMs: number): Partial<OwnerFacts> {
  const { end, wakeOnTraffic, portsPublic, labels, env } = wish;
  return {
    ...(end === undefined ? {} : { end: end === null ? null : changedEnd(agent, end, nowMs) }),
    ...(wakeOnTraffic === undefined ? {} : { wakeOnTraffic }),
    ...(portsPublic === undefined ? {} : { portsPublic }),
    ...(labels === undefined ? {} : { labels }),
    ...(env === undefined ? {} : { env }),
  };
}

function changedEnd({ end, report }: Agent, wish: EndWish, nowMs: number): End {
  const before = end ?? null;
  const wished = lengthOf(wish, before);
  if (report === null) return { ...wished, atMs: null };
  if (before !== null && wish.once === true) wished.afterMs = before.afterMs;
  const atMs = nowMs + wish.afterMs;
  const later = wish.extend === true ? (before?.atMs ?? 0) : 0;
  if (before === null || later <= atMs) return { ...wished, atMs };
  return { ...wished, atMs: later, afterMs: before.afterMs };
}

function lengthOf(wish: Pick<EndWish, "afterMs" | "then">, before: End | null) {
  return { afterMs: wish.afterMs, then: wish.then ?? before?.then ?? "sleep" };
}
