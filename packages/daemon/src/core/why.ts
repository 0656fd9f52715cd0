/** Why: what keeps an agent in its state, what happens next by itself, and what would change it. */
import { MIB, type Why, type WhyReason } from "@perdure/protocol";
import type { Attendance } from "./actor.ts";
import { endDueMs, wakeDueMs, type Agent } from "./agent.ts";
import { pendingOf } from "./size.ts";

/** @param attendance of an awake agent; null where nobody looks after it */
export function whyOf(agent: Agent, attendance: Attendance | null): Why {
  return {
    state: agent.state,
    sinceMs: agent.changedAtMs,
    reasons: [...reasonsOf(agent, attendance), ...sizeReasons(agent)],
    next: nextOf(agent, attendance),
    ways: [...waysOf(agent)],
  };
}

function* reasonsOf(agent: Agent, attendance: Attendance | null): Generator<WhyReason> {
  const because = (reason: string, detail: string): WhyReason => ({
    reason,
    detail,
    untilMs: null,
  });
  switch (agent.state) {
    case "awake":
      if (agent.idleAfterMs === null) {
        yield because("idle-off", "It is never put to sleep for being idle");
      }
      if (attendance === null) return;
      yield* attendance.needs;
      if (attendance.sleepDueMs !== null) {
        yield {
          reason: "quiet",
          detail: "Nothing needs it; it is put to sleep when its idle time is over",
          untilMs: attendance.sleepDueMs,
        };
      }
      return;
    case "asleep":
      if (agent.asleepBecause === "idle")
        yield because("idle", "Nothing needed it for its idle time");
      else if (agent.asleepBecause === "end") yield because("end", "Its end had come");
      else yield because("asked", "It was put to sleep on demand");
      return;
    case "stopped":
      yield because("stopped", "It was powered off");
      return;
    case "quarantined":
      yield because(
        "quarantined",
        agent.quarantine?.reason ?? "The wake gate refused to let it out",
      );
      return;
    case "failed":
      yield because("failed", agent.failure?.message ?? "It failed");
      return;
    case "creating":
    case "falling-asleep":
    case "waking":
    case "stopping":
    case "removed":
      yield because("changing", `It is ${agent.state}`);
      return;
  }
}

/** What its owner set and it does not have yet. */
function* sizeReasons(agent: Agent): Generator<WhyReason> {
  const pending = pendingOf(agent);
  if (pending === null) return;
  const { memoryBytes, cpus, diskBytes } = pending;
  const because = (reason: string, detail: string): WhyReason => ({
    reason,
    detail,
    untilMs: null,
  });
  const parts = [
    ...(memoryBytes === undefined ? [] : [`${memoryBytes / MIB} MiB of memory`]),
    ...(cpus === undefined ? [] : [`${cpus} CPU${cpus === 1 ? "" : "s"}`]),
  ];
  if (parts.length > 0) {
    yield because("size-pending", `It gets ${parts.join(" and ")} at its next cold start`);
  }
  if (diskBytes === undefined) return;
  yield because(
    "disk-pending",
    `Its disk of ${diskBytes / MIB} MiB is not filled yet: its next wake does that`,
  );
}

function nextOf(agent: Agent, attendance: Attendance | null): Why["next"] {
  const dueMs = wakeDueMs(agent);
  if (dueMs !== null) return { what: "wake", atMs: dueMs };
  const sleepDueMs = attendance?.sleepDueMs ?? null;
  const endMs = endDueMs(agent);
  if (endMs !== null && endMs <= (sleepDueMs ?? Infinity)) {
    return { what: agent.end?.then ?? "sleep", atMs: endMs };
  }
  return sleepDueMs === null ? null : { what: "sleep", atMs: sleepDueMs };
}

function* waysOf({ state, name, failure, paused }: Agent): Generator<string> {
  switch (state) {
    case "awake":
      // Nothing that needs an answer from inside.
      if (paused !== null) {
        yield "perdure gc";
        yield `perdure quarantine ${name} --reason REASON`;
        yield `perdure remove ${name}`;
        return;
      }
      yield `perdure sleep ${name}`;
      yield `perdure hold ${name} --for 1h`;
      yield `perdure set ${name} --idle-after 10m`;
      return;
    case "asleep":
      yield `perdure wake ${name}`;
      yield `perdure exec ${name} -- true`;
      return;
    case "stopped":
      yield `perdure start ${name}`;
      return;
    case "quarantined":
      yield `perdure release ${name}`;
      yield `perdure recover ${name} --from checkpoint|disk`;
      yield `perdure restore ${name} CHECKPOINT`;
      return;
    case "failed":
      if (failure !== null) yield failure.wayBack;
      return;
    case "creating":
    case "falling-asleep":
    case "waking":
    case "stopping":
    case "removed":
      return;
  }
}
