/**
 * Alarm: wakes sleeping agents when they are due, by their owner's word or for a program inside that waits, and
 * puts to sleep or removes awake ones whose end, which their owner set, has come.
 *
 * What is due is read from the state store, so that a daemon that starts again knows it as well; one that was
 * down meanwhile acts late, once. What fails is tried again, later each time; meanwhile others go on.
 */
import { PerdureError, type AgentId } from "@perdure/protocol";
import { engineLimits } from "./limit.ts";
import { Nudge } from "./nudge.ts";
import type { Parts } from "./parts.ts";

interface Failed {
  readonly tries: number;
  /** Monotonic milliseconds. */
  readonly againMs: number;
}

export class Alarm {
  readonly #parts: Parts;
  readonly #act: (id: AgentId) => Promise<void>;
  readonly #closing: AbortSignal;
  readonly #busy = new Set<AgentId>();
  readonly #failed = new Map<AgentId, Failed>();
  readonly #nudge: Nudge;
  #running = false;

  /** `act` does what is due for the agent, if it still is. */
  constructor(parts: Parts, act: (id: AgentId) => Promise<void>, closing: AbortSignal) {
    this.#parts = parts;
    this.#act = act;
    this.#closing = closing;
    this.#nudge = new Nudge(parts.clock);
  }

  /** Looks at what is due: at the start of the daemon, and whenever an agent has got another due time. */
  nudge(): void {
    this.#nudge.say();
    if (!this.#running) void this.#run();
  }

  /** Until nothing is due any more, or the daemon closes. That it has ended is known at once: the next nudge begins anew. */
  async #run(): Promise<void> {
    this.#running = true;
    try {
      while (!this.#closing.aborted) {
        const rest = this.#nudge.arm(this.#closing);
        const ms = await this.#actOnDue().catch((error: unknown) => {
          if (!this.#closing.aborted) {
            const { message } = PerdureError.from(error);
            this.#parts.log("warn", "What is due could not be read", { message });
          }
          return engineLimits.alarmLookEveryMsMax;
        });
        if (ms === null && !this.#nudge.isSaid) return;
        await rest(ms ?? 0);
      }
    } finally {
      this.#running = false;
    }
  }

  /** Acts on all that are due. Returns how long nothing else is; null: nothing will be. */
  async #actOnDue(): Promise<number | null> {
    const { state, clock } = this.#parts;
    const limit = engineLimits.alarmActsMax + this.#busy.size + this.#failed.size;
    const due = await state.due(limit);
    if (due.length === 0) return null;
    const nowMs = clock.nowMs();
    // The wall clock may be set meanwhile: it is looked at again before long.
    let nextMs: number = engineLimits.alarmLookEveryMsMax;
    for (const { id, dueMs } of due) {
      if (this.#busy.has(id)) continue;
      const againMs = (this.#failed.get(id)?.againMs ?? 0) - clock.monotonicMs();
      const inMs = Math.max(dueMs - nowMs, againMs, 0);
      if (inMs === 0 && this.#busy.size < engineLimits.alarmActsMax) void this.#actOnOne(id);
      else if (inMs > 0) nextMs = Math.min(nextMs, inMs);
    }
    return nextMs;
  }

  async #actOnOne(id: AgentId): Promise<void> {
    this.#busy.add(id);
    try {
      await this.#act(id);
      this.#failed.delete(id);
    } catch (error) {
      const { code, message } = PerdureError.from(error);
      if (code === "agent_not_found") this.#failed.delete(id);
      else if (!this.#closing.aborted) {
        const tries = (this.#failed.get(id)?.tries ?? 0) + 1;
        const waitMs = Math.min(
          engineLimits.alarmRetryMs * 2 ** (tries - 1),
          engineLimits.alarmRetryMsMax,
        );
        this.#failed.set(id, { tries, againMs: this.#parts.clock.monotonicMs() + waitMs });
        this.#parts.log("warn", "What was due for an agent could not be done", {
          agent: id,
          code,
          message,
          tries,
        });
      }
    } finally {
      this.#busy.delete(id);
      this.nudge();
    }
  }
}
