/**
 * Attendant: looks after one awake agent. Puts it to sleep when nothing has needed it for its idle time, and
 * takes periodic checkpoints while something changes.
 *
 * What needs an agent awake: a caller who is attached, a program inside that uses the CPU, a hold, a program
 * that waits for a time which is near. Looks of the attendant itself do not count, nor does a VM that stands
 * still for want of room. A guest that does not answer is not known to be idle (I10).
 *
 * A decision to sleep is made outside the agent's lane and looked at once more inside it: a call that came
 * between wins.
 */
import { PerdureError, restLimits, type WhyReason } from "@perdure/protocol";
import type { Actor, Attendance } from "./actor.ts";
import { engineLimits } from "./limit.ts";
import { Nudge } from "./nudge.ts";
import type { GuestActivity, GuestLink } from "./ports/guest-link.ts";
import { sleep, takeCheckpoint } from "./sleep.ts";
import { WaitLog } from "./wait-log.ts";

/** Runs work alone on the agent, once it is settled. */
type Alone = (work: () => Promise<void>) => Promise<void>;

interface Look {
  readonly atMs: number;
  readonly activity: GuestActivity;
}

export class Attendant implements Attendance {
  readonly #actor: Actor;
  readonly #alone: Alone;
  readonly #waits = new WaitLog();
  readonly #stopped: AbortSignal;
  readonly #nudge: Nudge;
  #last: Look | null = null;
  /** Since when nothing needs it awake, monotonic. */
  #quietSinceMs: number;
  #cpuShare = 0;
  #silent = false;
  /** Just before the newest cut; null: there was none since it was let out. */
  #atCut: GuestActivity | null = null;
  #cutAtMs: number;
  #lastPauseMs = 0;

  constructor(actor: Actor, alone: Alone, stopped: AbortSignal) {
    this.#actor = actor;
    this.#alone = alone;
    this.#stopped = stopped;
    this.#nudge = new Nudge(actor.parts.clock);
    this.#quietSinceMs = this.#nowMs;
    this.#cutAtMs = this.#nowMs;
    void this.#attend().catch((error: unknown) => {
      if (stopped.aborted) return;
      actor.parts.log("error", "An agent is not attended any more", {
        agent: actor.id,
        message: PerdureError.from(error).message,
      });
    });
  }

  nudge(): void {
    this.#nudge.say();
  }

  cutBegins(): (pauseMs: number) => void {
    const before = this.#last?.activity ?? null;
    return (pauseMs) => {
      this.#cutAtMs = this.#nowMs;
      this.#lastPauseMs = pauseMs;
      this.#atCut = before;
    };
  }

  get waitDueMs(): number | null {
    return this.#wallTime(this.#waits.firstDueMs(this.#nowMs, this.#waitAgeMs));
  }

  /** One that is due late counts as well. A guest that does not tell costs no sleep. */
  async lookForWait(): Promise<number | null> {
    const { link } = this.#actor;
    try {
      if (link !== null) this.#waits.look(await link.timers(), this.#nowMs);
    } catch (error) {
      const { message } = PerdureError.from(error);
      this.#actor.parts.log("debug", "Waits inside are not known", {
        agent: this.#actor.id,
        message,
      });
    }
    const age = this.#waitAgeMs;
    return this.#wallTime(this.#waits.firstDueMs(this.#nowMs, age, age));
  }

  get #waitAgeMs(): number {
    return (this.#actor.agent.idleAfterMs ?? restLimits.idleAfterMsDefault) / 2;
  }

  /** Of a moment on the monotonic clock. */
  #wallTime(atMs: number | null): number | null {
    return atMs === null ? null : Math.round(this.#actor.parts.clock.nowMs() + atMs - this.#nowMs);
  }

  get sleepDueMs(): number | null {
    const { idleAfterMs } = this.#actor.agent;
    if (idleAfterMs === null || this.needs.length > 0) return null;
    return this.#wallTime(this.#quietSinceMs + idleAfterMs);
  }

  get needs(): readonly WhyReason[] {
    const { agent, callers, parts } = this.#actor;
    const nowMs = parts.clock.nowMs();
    const found: WhyReason[] = [];
    const add = (reason: string, detail: string, untilMs: number | null = null): void =>
      void found.push({ reason, detail, untilMs });
    if (agent.paused !== null) {
      add(
        "paused",
        `Its VM stands still: ${agent.paused}; it goes on by itself once there is room`,
      );
    }
    if (callers.count > 0) add("caller", `Callers attached: ${callers.count}`);
    for (const { id, reason, untilMs } of agent.holds) {
      const why = reason === "" ? "" : `: ${reason}`;
      if (untilMs > nowMs) add("hold", `Hold ${id}${why}`, untilMs);
    }
    if (this.#cpuShare > engineLimits.idleCpuShare) {
      add("busy", `Programs inside use ${Math.round(this.#cpuShare * 100)} % of a CPU`);
    }
    if (this.#silent) add("silent", "Its guest agent does not answer");
    const { waitDueMs } = this;
    if (waitDueMs !== null && waitDueMs - nowMs <= engineLimits.waitNearMs) {
      add("wait-near", "A program inside waits for a time that is near", waitDueMs);
    }
    return found;
  }

  get #nowMs(): number {
    return this.#actor.parts.clock.monotonicMs();
  }

  async #attend(): Promise<void> {
    while (!this.#stopped.aborted) {
      const rest = this.#nudge.arm(this.#stopped);
      await this.#look();
      await this.#act();
      await rest(this.#restMs);
    }
  }

  /** Until the next look. */
  get #restMs(): number {
    const { idleAfterMs, checkpointEveryMs } = this.#actor.agent;
    if (idleAfterMs === null && checkpointEveryMs === null) return Infinity;
    return Math.min(
      idleAfterMs === null ? Infinity : idleAfterMs / 4,
      checkpointEveryMs ?? Infinity,
      engineLimits.lookEveryMsMax,
    );
  }

  /** One look at what goes on inside, beside the lane: nobody waits for it. */
  async #look(): Promise<void> {
    const { link, lane, agent } = this.#actor;
    if (agent.idleAfterMs === null && agent.checkpointEveryMs === null) return;
    if (lane.isExclusive || agent.paused !== null) return;
    if (link === null) {
      this.#silent = true;
      return;
    }
    try {
      await this.#lookInside(link, agent.idleAfterMs !== null);
      this.#silent = false;
    } catch (error) {
      // A verb may have closed the link meanwhile; then there is nothing to look at.
      if (this.#stopped.aborted || this.#actor.link !== link) return;
      this.#silent = true;
      const { message } = PerdureError.from(error);
      this.#actor.parts.log("debug", "An awake agent could not be looked at", {
        agent: this.#actor.id,
        message,
      });
    }
  }

  async #lookInside(link: GuestLink, withWaits: boolean): Promise<void> {
    const activity = await link.activity();
    const atMs = this.#nowMs;
    const last = this.#last;
    if (last !== null && atMs > last.atMs) {
      const usedMs = (activity.cpuUsec - last.activity.cpuUsec) / 1000;
      this.#cpuShare = Math.max(0, usedMs) / (atMs - last.atMs);
    }
    this.#last = { atMs, activity };
    if (!withWaits || this.#cpuShare > engineLimits.idleCpuShare) return;
    this.#waits.look(await link.timers(), this.#nowMs);
  }

  async #act(): Promise<void> {
    const { agent, callers, lane } = this.#actor;
    if (this.#stopped.aborted || lane.isExclusive) return;
    const nowMs = this.#nowMs;
    if (this.needs.length > 0) this.#quietSinceMs = nowMs;
    else this.#quietSinceMs = Math.max(this.#quietSinceMs, callers.lastMs);
    if (agent.idleAfterMs !== null && nowMs - this.#quietSinceMs >= agent.idleAfterMs) {
      await this.#sleep(nowMs);
      return;
    }
    if (this.#isCutDue(nowMs)) await this.#checkpoint();
  }

  /** Periodic pauses take a hundredth of the time at most. */
  #isCutDue(nowMs: number): boolean {
    const { agent } = this.#actor;
    if (agent.checkpointEveryMs === null || agent.paused !== null || this.#silent) return false;
    const everyMs = Math.max(agent.checkpointEveryMs, 100 * this.#lastPauseMs);
    return nowMs - this.#cutAtMs >= everyMs && hasChanged(this.#atCut, this.#last?.activity);
  }

  async #sleep(decidedAtMs: number): Promise<void> {
    const { parts, id, callers } = this.#actor;
    try {
      await this.#alone(async () => {
        if (this.#stopped.aborted || this.#actor.agent.state !== "awake") return;
        if (callers.lastMs > decidedAtMs || this.needs.length > 0) return;
        await sleep(this.#actor, { because: "idle" });
      });
    } catch (error) {
      this.#quietSinceMs = this.#nowMs;
      const { code, message } = PerdureError.from(error);
      if (code === "sleep_cancelled" || this.#stopped.aborted) return;
      parts.log("warn", "An idle agent could not be put to sleep", { agent: id, code, message });
    }
  }

  async #checkpoint(): Promise<void> {
    const { parts, id } = this.#actor;
    // Also where it fails: the next one is not tried before its time.
    this.#cutAtMs = this.#nowMs;
    try {
      await this.#alone(async () => {
        const { agent, link } = this.#actor;
        if (this.#stopped.aborted || agent.state !== "awake") return;
        if (agent.paused !== null || link === null) return;
        await takeCheckpoint(this.#actor, { kind: "periodic", name: null });
      });
    } catch (error) {
      const { code, message } = PerdureError.from(error);
      if (this.#stopped.aborted) return;
      parts.log("warn", "A periodic checkpoint was skipped", { agent: id, code, message });
    }
  }
}

/** Whether a checkpoint now would hold anything that one at `before` does not. Not known counts as changed. */
function hasChanged(before: GuestActivity | null, now: GuestActivity | undefined): boolean {
  if (before === null || now === undefined) return true;
  return (
    now.cpuUsec !== before.cpuUsec ||
    now.diskWriteBytes !== before.diskWriteBytes ||
    now.execs !== before.execs ||
    now.fileWrites !== before.fileWrites
  );
}
