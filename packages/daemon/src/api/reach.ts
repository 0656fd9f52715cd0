/**
 * Which agents a key reaches that is limited to some. One that it does not reach is as one that does not
 * exist: nothing is told of it.
 */
import { agentIdSchema, PerdureError } from "@perdure/protocol";
import type { StateStore } from "../core/ports/state-store.ts";
import type { Principal } from "./principal.ts";

export class Reach {
  readonly #state: Pick<StateStore, "agent" | "agentByName">;

  constructor(state: Pick<StateStore, "agent" | "agentByName">) {
    this.#state = state;
  }

  /** @throws `agent_not_found` */
  async assert(principal: Principal, ref: string): Promise<void> {
    if ((await this.narrow(principal, ref)) !== null) return;
    throw new PerdureError("agent_not_found", `No agent has the name or id "${ref}"`, {
      hint: '"perdure list" shows those that exist',
    });
  }

  /**
   * What `ref`, a name or an id, may be taken for: itself, or where the key names the agent by its id, that;
   * null where the key does not reach it.
   */
  async narrow({ agents, tenant }: Principal, ref: string): Promise<string | null> {
    if (agents === null || agents.includes(ref)) return ref;
    const id = agentIdSchema.safeParse(ref);
    const agent = id.success
      ? await this.#state.agent(id.data)
      : await this.#state.agentByName(tenant, ref);
    if (agent?.tenant !== tenant) return null;
    if (agents.includes(agent.id)) return agent.id;
    return agents.includes(agent.name) ? ref : null;
  }
}
