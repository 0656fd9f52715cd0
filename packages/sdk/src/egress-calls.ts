/** The way out of an agent. Part of `Perdure`; examples run as they stand. */
import { apiLimits, routes } from "@perdure/protocol";
import type { ConnectionView, EgressRequest, EgressView } from "@perdure/protocol";
import { allOfPages } from "./page.ts";
import { PortCalls } from "./port-calls.ts";
import type { CallOptions } from "./transport.ts";

export class EgressCalls extends PortCalls {
  /**
   * Which connections to elsewhere the agent may make, and whether it can.
   *
   * @throws `agent_not_found`
   * @example
   * const { rules, otherwise, wayOut } = await perdure.egress("a1");
   */
  egress(agent: string, { signal }: CallOptions = {}): Promise<EgressView> {
    return this.call(routes.egress, { agent }, { signal });
  }

  /**
   * Says which connections to elsewhere the agent may make: the first rule that speaks of one decides. It holds at
   * once, for those that are open as well, and on every wake after it. Its forks do not have it.
   *
   * @param policy.rules at most 256
   * @param policy.otherwise what is done with connections that no rule speaks of: `deny` by default
   * @throws `agent_not_found`, `bad_request`
   * @example
   * await perdure.setEgress("a1", {
   *   rules: [
   *     { action: "allow", to: "pypi.org", ports: [443] },
   *     { action: "allow", to: "*.pythonhosted.org", ports: [443] },
   *     { action: "allow", to: "10.0.0.5", ports: [8080], methods: ["GET"] },
   *   ],
   * });
   */
  setEgress(agent: string, policy: EgressRequest, options: CallOptions = {}): Promise<EgressView> {
    return this.call(routes.setEgress, { agent }, { json: policy, ...options });
  }

  /**
   * The agent's connections to elsewhere, oldest first, those that were denied included.
   *
   * @throws `agent_not_found`
   * @example
   * for (const { name, address, port, outcome, outBytes } of await perdure.connections("a1")) {
   *   console.log(name ?? address, port, outcome, outBytes);
   * }
   */
  async connections(agent: string, { signal }: CallOptions = {}): Promise<ConnectionView[]> {
    return allOfPages(async (after) => {
      const query = { ...after, limit: apiLimits.listLimitMax };
      const page = await this.call(routes.connections, { agent }, { query, signal });
      return { items: page.connections, next: page.next };
    });
  }
}
