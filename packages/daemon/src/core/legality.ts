/**
 * Which verb is legal in which state, and what it does there. The one table.
 *
 * Transitional states (creating, falling-asleep, waking, stopping) have no column: a verb that arrives
 * then waits for its turn in the agent's lane and meets the state that came of it; calls that need the
 * agent awake cancel a sleep that is not published yet. `removed` wins over everything.
 */
import { PerdureError, type AgentState } from "@perdure/protocol";
import type { Agent } from "./agent.ts";

export type Verb =
  | "call"
  | "sleep"
  | "wake"
  | "checkpoint"
  | "restore"
  | "drop"
  | "fork"
  | "hot"
  | "export"
  | "gc"
  | "stop"
  | "start"
  | "recover"
  | "configure"
  | "set-port"
  | "set-egress"
  | "hold"
  | "end-hold"
  | "quarantine"
  | "release"
  | "remove";

/**
 * - `does`: the verb is carried out.
 * - `nothing`: the agent already is what the verb would make it; answered at once.
 * - `wakes`: the agent is woken first.
 * - `recovers`: carried out as `recover`.
 * - `refuses`: `agent_state`, `agent_failed` or `agent_quarantined`, with the verb that leads out.
 */
export type Rule = "does" | "nothing" | "wakes" | "recovers" | "refuses";

type SettledState = "awake" | "asleep" | "stopped" | "quarantined" | "failed";

const rules: Readonly<Record<Verb, Readonly<Record<SettledState, Rule>>>> = {
  call: row("does", "wakes", "refuses", "refuses", "refuses"),
  sleep: row("does", "nothing", "refuses", "refuses", "refuses"),
  wake: row("nothing", "does", "refuses", "refuses", "recovers"),
  checkpoint: row("does", "refuses", "refuses", "refuses", "refuses"),
  restore: row("does", "does", "does", "does", "does"),
  drop: row("does", "does", "does", "does", "does"),
  fork: row("does", "does", "does", "does", "does"),
  hot: row("does", "does", "does", "does", "does"),
  export: row("does", "does", "does", "does", "does"),
  gc: row("does", "does", "does", "does", "does"),
  stop: row("does", "wakes", "nothing", "refuses", "refuses"),
  start: row("nothing", "refuses", "does", "refuses", "refuses"),
  recover: row("refuses", "does", "does", "does", "does"),
  configure: row("does", "does", "does", "does", "does"),
  "set-port": row("does", "does", "does", "does", "does"),
  "set-egress": row("does", "does", "does", "does", "does"),
  hold: row("does", "wakes", "refuses", "refuses", "refuses"),
  "end-hold": row("does", "does", "does", "does", "does"),
  quarantine: row("does", "does", "does", "nothing", "does"),
  release: row("refuses", "refuses", "refuses", "does", "refuses"),
  remove: row("does", "does", "does", "does", "does"),
};

function row(awake: Rule, asleep: Rule, stopped: Rule, quarantined: Rule, failed: Rule) {
  return { awake, asleep, stopped, quarantined, failed };
}

/** What `verb` does to `agent`. @throws the refusal; `agent_not_found` where it was removed */
export function ruleFor(verb: Verb, agent: Agent): Exclude<Rule, "refuses"> {
  const state = settled(agent.state);
  if (state === null) {
    throw new PerdureError("agent_not_found", `Agent "${agent.name}" is ${agent.state}`);
  }
  const rule = rules[verb][state];
  if (rule !== "refuses") return rule;
  throw new PerdureError(
    state === "failed"
      ? "agent_failed"
      : state === "quarantined"
        ? "agent_quarantined"
        : "agent_state",
    `Cannot ${verb === "call" ? "call into" : verb} agent "${agent.name}": state is ${agent.state}${
      agent.failure === null ? "" : ` (${agent.failure.reason}: ${agent.failure.message})`
    }`,
    { hint: wayOut(agent, state, verb) },
  );
}

function settled(state: AgentState): SettledState | null {
  switch (state) {
    case "awake":
    case "asleep":
    case "stopped":
    case "quarantined":
    case "failed":
      return state;
    case "creating":
    case "falling-asleep":
    case "waking":
    case "stopping":
    case "removed":
      return null;
  }
}

/** What is legal now, and makes the verb legal where anything does. */
function wayOut(agent: Agent, state: SettledState, verb: Verb): string {
  const { name } = agent;
  if (verb === "release" && state !== "failed") {
    return `Only a quarantined agent is released; "perdure why ${name}" says what holds this one`;
  }
  switch (state) {
    case "awake":
      return `"perdure restore ${name} CHECKPOINT" takes it back to a checkpoint as it is; "perdure sleep ${name}" or "perdure stop ${name}" first to recover it`;
    case "asleep":
      return `"perdure wake ${name}" first`;
    case "stopped":
      return `"perdure start ${name}" boots it from its disk`;
    case "quarantined":
      return `"perdure release ${name}" lets it go on as it is; "perdure recover ${name} --from checkpoint|disk" begins anew from a cut`;
    case "failed":
      return wayBackOf(agent);
  }
}

/** How an agent comes back whose VM has ended. Where its owner chooses the cut, a wake does not. */
export function wayBackOf({ name, onCrash }: Pick<Agent, "name" | "onCrash">): string {
  const chooses = `"perdure recover ${name} --from checkpoint|disk" chooses the cut`;
  return onCrash === "ask" ? chooses : `"perdure wake ${name}" recovers it; ${chooses}`;
}
