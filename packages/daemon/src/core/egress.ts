/**
 * The way out of one agent: opened before its programs thaw, on every route, so that none of them ever meets another
 * policy than that of now (I4); served once it is let out; gone with the link. What is open at a sleep is reset, and
 * none is carried into another generation (I1).
 */
import {
  closedEgress,
  isClosedEgress,
  PerdureError,
  type EgressPolicy,
  type EgressView,
  type GateCheck,
} from "@perdure/protocol";
import type { Agent } from "./agent.ts";
import { placeOf, type UnmediatedSince } from "./connection.ts";
import { engineLimits } from "./limit.ts";
import type { ConnectionTeller, Egress, WayOut } from "./ports/egress.ts";
import type { GuestLink, OutboundConnection } from "./ports/guest-link.ts";

type Wanted = AsyncIterableIterator<OutboundConnection, undefined>;

export interface AgentEgressOptions {
  readonly egress: Egress;
  readonly agent: () => Agent;
  readonly teller: (agent: Agent) => ConnectionTeller;
}

export class AgentEgress {
  readonly #options: AgentEgressOptions;
  /** Opened, and not served yet. */
  #opened: Wanted | null = null;
  #wayOut: WayOut | null = null;

  constructor(options: AgentEgressOptions) {
    this.#options = options;
  }

  /** Before the thaw. @throws the link's errors, but for those of a guest that has no way out */
  async open(link: GuestLink): Promise<GateCheck> {
    this.#opened = null;
    this.#wayOut = null;
    const policy = policyOf(this.#options.agent());
    try {
      const opened = await link.openWayOut(engineLimits.gateMs);
      this.#opened = opened;
      void link.closed.then(() => {
        if (this.#opened === opened) this.#opened = null;
      });
      return { check: "egress", outcome: "passed", detail: inWords(policy) };
    } catch (error) {
      if (PerdureError.from(error).code !== "not_supported") throw error;
      return absent(policy);
    }
  }

  /** Once the agent is let out. */
  begin(link: GuestLink): void {
    const wanted = this.#opened;
    this.#opened = null;
    if (wanted === null) return;
    const agent = this.#options.agent();
    const teller = this.#options.teller(agent);
    const wayOut = this.#options.egress.serve(wanted, policyOf(agent), teller);
    this.#wayOut = wayOut;
    void link.closed.then(() => {
      if (this.#wayOut === wayOut) this.#wayOut = null;
    });
  }

  /** The policy has changed: it holds at once, for open connections as well. */
  changed(): void {
    this.#wayOut?.apply(policyOf(this.#options.agent()));
  }

  view(): EgressView {
    const agent = this.#options.agent();
    return {
      ...egressView(agent),
      wayOut: agent.state !== "awake" ? null : this.#wayOut === null ? "none" : "open",
      connections: this.#wayOut?.open ?? 0,
    };
  }
}

export function policyOf({ egress = closedEgress }: Agent): EgressPolicy {
  return egress;
}

/** Of an agent without a machine. */
export function egressView(agent: Agent): EgressView {
  return { agent: agent.id, ...policyOf(agent), wayOut: null, connections: 0 };
}

function inWords(policy: EgressPolicy): string {
  const { rules, otherwise } = policy;
  if (isClosedEgress(policy)) return "Nothing gets out.";
  const count = rules.length === 1 ? "1 rule is" : `${rules.length} rules are`;
  return `${count} loaded; what none of them speaks of is ${otherwise === "deny" ? "denied" : "allowed"}.`;
}

function absent(policy: EgressPolicy): GateCheck {
  const check = "egress";
  const why = "Its guest agent is of before there was a way out, or its kernel lacks what it needs";
  if (isClosedEgress(policy)) {
    return { check, outcome: "not-applicable", detail: `${why}; nothing gets out anyway.` };
  }
  const detail = `${why}: nothing gets out, whatever the policy allows. A cold start may give it one.`;
  return { check, outcome: "notice", detail };
}

/** What a report says of connections that the agent does not know of, as it goes on from before them (I11). */
export function checkUnmediated({ count, last }: UnmediatedSince): GateCheck {
  const check = "connections";
  if (count === 0 || last === null) {
    return { check, outcome: "passed", detail: "No connection out since the cut." };
  }
  const newest = `${placeOf(last)} at ${new Date(last.atMs).toISOString()}`;
  const them = count === 1 ? "1 connection out" : `${count} connections out`;
  const detail = `${them} since the cut: what they did outside is not undone. The newest led to ${newest}.`;
  return { check, outcome: "notice", detail };
}
