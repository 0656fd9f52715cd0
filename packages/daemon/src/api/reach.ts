/**
 * Which agents a key reaches that is limited to some. One that it does not reach is as one that does not
 * exist: nothing is told of it.
 */
import { agentIdSchema } from "@perdure/protocol";
import { noSuchAgent } from "../core/no-such-agent.ts";
import type { StateStore } from "../core/ports/state-store.ts";
import type { Principal } from "./principal.ts";

export class Reach {
  readonly #state: Pick<StateStore, "agent" | "agentByName">;

  constructor(state: Pick<StateStore, "agent" | "agentByName">) {
    this.#state = state;
  }

  /**
   * What `ref`, a name or an id, may be taken for: itself, or where the key names the agent by its id, that.
   * @throws `agent_not_found` where the key does not reach it
   */
  async assert(principal: Principal, ref: string): Promise<string> {
    const found = await this.#narrow(principal, ref);
    if (found === null) throw noSuchAgent(ref);
    return found;
  }

  async #narrow({ agents, tenant }: Principal, ref: string): Promise<string | null> {
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
