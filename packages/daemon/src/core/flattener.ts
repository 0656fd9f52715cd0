/**
 * Flattener: when agents that rest are flattened by themselves. One at a time in a daemon, each once it has
 * rested for a while; one that could not be is tried again, later each time.
 *
 * What is known here is lost with the daemon: the next one hears of each agent when it collects.
 */
import { PerdureError, type AgentId } from "@perdure/protocol";
import type { Agent } from "./agent.ts";
import { isChainLong } from "./flatten.ts";
import { engineLimits } from "./limit.ts";
import type { Parts } from "./parts.ts";

interface Due {
  /** Monotonic milliseconds. */
  readonly atMs: number;
  readonly tries: number;
}

export class Flattener {
  readonly #parts: Parts;
  readonly #flatten: (id: AgentId) => Promise<void>;
  readonly #closing: AbortSignal;
  readonly #due = new Map<AgentId, Due>();
  #running = false;

  /** `flatten` does it if it still rests and nobody wants it. */
  constructor(parts: Parts, flatten: (id: AgentId) => Promise<void>, closing: AbortSignal) {
    this.#parts = parts;
    this.#flatten = flatten;
    this.#closing = closing;
  }

  /** What became of an agent: from its rest on it waits for its turn here, and no longer than that. */
  look(agent: Agent): void {
    if (!isChainLong(agent)) this.#due.delete(agent.id);
    else if (!this.#due.has(agent.id)) this.#plan(agent.id, 0);
  }

  #plan(id: AgentId, tries: number): void {
    const { flattenAfterMs, flattenAfterMsMax } = engineLimits;
    const inMs = Math.min(flattenAfterMs * 2 ** tries, flattenAfterMsMax);
    this.#due.set(id, { atMs: this.#parts.clock.monotonicMs() + inMs, tries });
    if (this.#running) return;
    this.#running = true;
    void this.#run();
  }

  async #run(): Promise<void> {
    const { clock } = this.#parts;
    for (let next = this.#next(); next !== null; next = this.#next()) {
      const [id, { atMs, tries }] = next;
      const inMs = atMs - clock.monotonicMs();
      if (inMs > 0) {
        // Nobody who comes meanwhile is due sooner than that.
        const longestMs = engineLimits.flattenAfterMs;
        await clock.wait(Math.min(inMs, longestMs), this.#closing).catch(() => undefined);
        continue;
      }
      // Planned anew first: what becomes of it takes that back.
      this.#plan(id, tries + 1);
      await this.#try(id);
    }
    this.#running = false;
  }

  async #try(id: AgentId): Promise<void> {
    try {
      await this.#flatten(id);
    } catch (error) {
      const { code, message } = PerdureError.from(error);
      if (code === "agent_not_found") this.#due.delete(id);
      else if (!this.#closing.aborted)
        this.#parts.log("info", "Disk layers of an agent at rest stay as they are", {
          agent: id,
          code,
          message,
        });
    }
  }

  #next(): readonly [AgentId, Due] | null {
    if (this.#closing.aborted) return null;
    const [first, ...rest] = this.#due;
    if (first === undefined) return null;
    return rest.reduce((one, other) => (other[1].atMs < one[1].atMs ? other : one), first);
  }
}
