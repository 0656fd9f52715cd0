/**
 * What the event log tells against the rows: read from its beginning, it leads to exactly what is stored.
 * Nothing happens that it does not tell, and it tells of nothing that did not happen.
 */
import type { AgentEvent, AgentId } from "@perdure/protocol";
import type { Agent } from "../../packages/daemon/src/core/agent.ts";
import type { StateStore } from "../../packages/daemon/src/core/ports/state-store.ts";

/** What is known of an agent by its events alone. */
class Told {
  state = "none";
  paused: string | null = null;
  readonly checkpoints = new Map<string, string | null>();
  /** Generations that it was let out under. */
  readonly letOut: number[] = [];

  hear({ kind, data, generation }: AgentEvent): void {
    const text = (name: string): string => String(data[name]);
    switch (kind) {
      case "created":
        this.state = text("state");
        break;
      case "state":
        if (this.state !== text("from")) this.state = `${this.state}, told as ${text("from")}`;
        else this.state = text("to");
        break;
      case "removed":
        this.state = "removed";
        break;
      case "paused":
        this.paused = text("reason");
        break;
      case "resumed":
        this.paused = null;
        break;
      case "let-out":
        this.letOut.push(generation);
        break;
      case "checkpoint":
      case "kept":
        this.checkpoints.set(text("checkpoint"), data["name"] as string | null);
        break;
      case "dropped":
        this.checkpoints.delete(text("checkpoint"));
        break;
      case "failed":
      case "quarantined":
      case "configured":
        break;
    }
  }
}

export async function eventViolations(
  state: StateStore,
  agents: readonly Agent[],
): Promise<string[]> {
  const query = { tenant: "default", agents: null, kinds: null, after: 0, limit: 1e9 };
  const { events } = await state.events(query);
  const told = new Map<AgentId, Told>();
  const found: string[] = [];
  for (const [index, event] of events.entries()) {
    if (event.id <= (events[index - 1]?.id ?? 0)) found.push(`event ${event.id} is out of order`);
    const known = told.get(event.agent) ?? new Told();
    told.set(event.agent, known);
    if (known.state === "removed") found.push(`event ${event.id} is told of a removed agent`);
    known.hear(event);
  }
  const living = new Map(agents.map((agent) => [agent.id, agent]));
  for (const [id, { state: last }] of told) {
    if (!living.has(id) && last !== "removed")
      found.push(`the events do not tell that ${id} is gone`);
  }
  for (const agent of agents) {
    found.push(...(await agentViolations(state, agent, told.get(agent.id) ?? new Told())));
  }
  return found;
}

async function agentViolations(state: StateStore, agent: Agent, told: Told): Promise<string[]> {
  const say = (what: string): string => `the events of ${agent.name} tell ${what}`;
  const found: string[] = [];
  if (told.state !== agent.state) found.push(say(`state ${told.state}, it is ${agent.state}`));
  if (told.paused !== agent.paused && agent.state !== "removed") {
    found.push(say(`paused ${told.paused}, it is ${agent.paused}`));
  }
  if (new Set(told.letOut).size !== told.letOut.length) found.push(say("a let-out twice"));
  if (agent.lease?.letOut === true && told.letOut.at(-1) !== agent.generation) {
    found.push(say(`no let-out under generation ${agent.generation}`));
  }
  const rows = await state.checkpoints(agent.id);
  const stored = rows.map(({ id, name }) => `${id} ${name}`).sort();
  const heard = [...told.checkpoints].map(([id, name]) => `${id} ${name}`).sort();
  if (stored.join() !== heard.join())
    found.push(say(`checkpoints ${heard.join()}, there are ${stored.join()}`));
  return found;
}
