/** When agents rest: settings, holds, why, quarantine. Part of `Perdure`; examples run as they stand. */
import { routes } from "@perdure/protocol";
import type { AgentView, ConfigureRequest, Hold, HoldRequest, Why } from "@perdure/protocol";
import { EgressCalls } from "./egress-calls.ts";
import type { CallOptions } from "./transport.ts";

export class RestCalls extends EgressCalls {
  /**
   * Changes settings of the agent, in whatever state it is; what is left out stays as it is.
   *
   * @param settings.memoryBytes at its next cold start: `stop`, then `start`; so are `cpus`. `pending` of the answer says so
   * @param settings.diskBytes an awake agent's disk grows at once, another's at its next wake; no disk shrinks
   * @param settings.idleAfterMs put to sleep after this long without anything that needs it awake; null: never
   * @param settings.checkpointEveryMs a checkpoint this often while something changes; null: never
   * @param settings.wakeAtMs when it is woken if it sleeps then, milliseconds since the epoch; null: not
   * @throws `agent_not_found`, `bad_request`
   * @example
   * await perdure.configure("a1", { idleAfterMs: 10 * 60_000, wakeAtMs: Date.now() + 3_600_000 });
   * const { shape, pending } = await perdure.configure("a1", { memoryBytes: 2 ** 30, diskBytes: 2 ** 34 });
   */
  configure(
    agent: string,
    settings: ConfigureRequest,
    options: CallOptions = {},
  ): Promise<AgentView> {
    return this.call(routes.configure, { agent }, { json: settings, ...options });
  }

  /**
   * Keeps the agent from being put to sleep for being idle, for `forMs` at most; wakes it where it is asleep.
   *
   * @param request.forMs 1 s to 24 h, default 15 min
   * @throws `too_many` beyond 16 holds, `agent_state`
   * @example
   * const { id, untilMs } = await perdure.hold("a1", { forMs: 60_000, reason: "deploying" });
   */
  hold(agent: string, request: HoldRequest = {}, options: CallOptions = {}): Promise<Hold> {
    return this.call(routes.hold, { agent }, { json: request, ...options });
  }

  /**
   * Ends a hold before its time.
   *
   * @throws `hold_not_found` where there is none of this number, or it has ended
   * @example
   * const { id } = await perdure.hold("a1");
   * await perdure.endHold("a1", id);
   */
  endHold(agent: string, hold: number, options: CallOptions = {}): Promise<AgentView> {
    return this.call(routes.endHold, { agent, hold }, options);
  }

  /**
   * Why the agent is awake or not, what happens next by itself, and what would change it.
   *
   * @throws `agent_not_found`
   * @example
   * const { state, reasons, next } = await perdure.why("a1");
   */
  why(agent: string, options: CallOptions = {}): Promise<Why> {
    return this.call(routes.why, { agent }, options);
  }

  /**
   * Bars the agent: an awake one is put to sleep, and nothing wakes it before `release`. It can still
   * be forked, to look into: a fork is another agent, and runs.
   *
   * @throws `agent_not_found`
   * @example
   * await perdure.quarantine("a1", "it wrote to a host it should not know");
   * await perdure.release("a1");
   */
  quarantine(agent: string, reason: string, options: CallOptions = {}): Promise<AgentView> {
    return this.call(routes.quarantine, { agent }, { json: { reason }, ...options });
  }

  /**
   * The operator's word that a quarantined agent may go on: it is as it was before, not woken yet.
   *
   * @throws `agent_state` where it is not quarantined
   * @example
   * await perdure.quarantine("a1", "a drill");
   * const { state } = await perdure.release("a1");
   */
  release(agent: string, options: CallOptions = {}): Promise<AgentView> {
    return this.call(routes.release, { agent }, options);
  }
}
