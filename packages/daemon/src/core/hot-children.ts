/**
 * Hot children: machines that hold a checkpoint's state already. The guest has answered, its workload is frozen, its
 * CPUs stand still. A fork or a restore that takes one has only the gate before it.
 *
 * - I1: a hot child is no agent's machine. It writes a layer that nobody else has; the generation is taken when
 *   it is let out. A daemon that dies leaves nothing but what the next one sweeps.
 * - I4: only a checkpoint whose workload was frozen has hot children: nothing of it runs before the gate.
 *
 * They cost memory for as long as they are kept, so they are few and have an end. Here they are kept;
 * hot-child.ts makes one.
 */
import {
  PerdureError,
  type AgentId,
  type CheckpointId,
  type GateCheck,
  type LayerId,
} from "@perdure/protocol";
import type { Clock } from "./ports/clock.ts";
import type { GuestLink } from "./ports/guest-link.ts";
import type { Machine, MemoryBase } from "./ports/substrate.ts";

/** What it can become: another agent, or this one gone back. */
export type HotUse = "fork" | "restore";

export interface HotChild {
  readonly use: HotUse;
  /** In whose folder its files are: for a fork that of the agent to come. */
  readonly owner: AgentId;
  /** Whose checkpoint it is. */
  readonly origin: AgentId;
  readonly checkpoint: CheckpointId;
  readonly machine: Machine;
  readonly link: GuestLink;
  readonly base: MemoryBase;
  readonly topLayer: LayerId;
  /** How far the file system inside reaches on its disk. */
  readonly reachedBytes: number;
  readonly verified: readonly GateCheck[];
  /** Ends it, with its files, where nobody takes it. Does not fail: what is left the next start of a daemon removes. */
  end(): Promise<void>;
}

/** What a wake report says of one that was taken: all was opened and verified when it was made. */
export function checksOf({ verified, checkpoint }: HotChild): GateCheck[] {
  const detail = `Prepared from ${checkpoint}.`;
  return [...verified, { check: "hot-child", outcome: "passed", detail }];
}

export interface HotChildrenOptions {
  readonly clock: Clock;
  /** Of all agents at once. */
  readonly childrenMax: number;
  /** After this long without being taken they are ended. */
  readonly keptMs: number;
}

interface Kept extends HotChild {
  readonly untilMs: number;
}

/** Those that are ready, and those on their way. */
export class HotChildren {
  readonly #options: HotChildrenOptions;
  readonly #closing = new AbortController();
  #kept: readonly Kept[] = [];
  #preparing = 0;
  #ending = Promise.resolve();
  #watching = false;

  constructor(options: HotChildrenOptions) {
    this.#options = options;
  }

  get all(): readonly HotChild[] {
    return this.#kept;
  }

  /** How many of the checkpoint are ready. */
  ready(checkpoint: CheckpointId, use: HotUse): number {
    return this.#kept.filter((child) => child.checkpoint === checkpoint && child.use === use)
      .length;
  }

  /** Layers and bases in the agent's own folder that hot children have open. */
  filesOf(agent: AgentId): { layers: readonly LayerId[]; bases: readonly MemoryBase[] } {
    const own = this.#kept.filter(({ owner }) => owner === agent);
    return { layers: own.map(({ topLayer }) => topLayer), bases: own.map(({ base }) => base) };
  }

  /**
   * Makes it `count` of the checkpoint, now. `prepare` makes ready for so many, and then each.
   * @throws `too_many`, and what `prepare` throws
   */
  async keep(
    checkpoint: CheckpointId,
    use: HotUse,
    count: number,
    prepare: (count: number) => Promise<() => Promise<HotChild>>,
  ): Promise<void> {
    for (let extra = this.ready(checkpoint, use) - count; extra > 0; extra--) {
      await (await this.take(checkpoint, use))?.end();
    }
    const missing = count - this.ready(checkpoint, use);
    if (missing <= 0) return;
    this.#assertRoom(missing);
    this.#preparing += missing;
    try {
      const next = await prepare(missing);
      for (let i = 0; i < missing; i++) {
        const child = await next();
        const untilMs = this.#options.clock.monotonicMs() + this.#options.keptMs;
        this.#kept = [...this.#kept, { ...child, untilMs }];
        child.machine.onEvent(() => void this.#release((kept) => kept.machine === child.machine));
      }
    } finally {
      this.#preparing -= missing;
      this.#watch();
    }
  }

  /** One of the checkpoint, which is the caller's from then on; null where none is ready. */
  async take(checkpoint: CheckpointId, use: HotUse): Promise<HotChild | null> {
    await this.#ending;
    const found = this.#kept.find((kept) => kept.checkpoint === checkpoint && kept.use === use);
    if (found === undefined) return null;
    this.#kept = this.#kept.filter((kept) => kept !== found);
    return found;
  }

  /** Ends those of a checkpoint that is gone. */
  releaseCheckpoint(checkpoint: CheckpointId): Promise<void> {
    return this.#release((kept) => kept.checkpoint === checkpoint);
  }

  /** Ends those of an agent that is removed. */
  releaseAgent(agent: AgentId): Promise<void> {
    return this.#release((kept) => kept.origin === agent);
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await this.#release(() => true);
  }

  #release(which: (kept: Kept) => boolean): Promise<void> {
    const leaving = this.#kept.filter(which);
    this.#kept = this.#kept.filter((kept) => !leaving.includes(kept));
    this.#ending = this.#ending.then(async () => {
      for (const child of leaving) await child.end();
    });
    return this.#ending;
  }

  #assertRoom(wanted: number): void {
    const { childrenMax } = this.#options;
    const there = this.#kept.length + this.#preparing;
    if (there + wanted <= childrenMax) return;
    throw new PerdureError(
      "too_many",
      `Cannot keep ${wanted} more hot children: there are ${there}, at most ${childrenMax} fit`,
      { hint: "Keep fewer, or let those that are not needed go by a count of 0" },
    );
  }

  /** Ends those whose time is over. */
  #watch(): void {
    if (this.#watching) return;
    const { clock } = this.#options;
    const run = async (): Promise<void> => {
      this.#watching = true;
      try {
        while (this.#kept.length > 0) {
          const nextMs = Math.min(...this.#kept.map(({ untilMs }) => untilMs));
          await clock.wait(Math.max(0, nextMs - clock.monotonicMs()), this.#closing.signal);
          await this.#release(({ untilMs }) => untilMs <= clock.monotonicMs());
        }
      } finally {
        this.#watching = false;
      }
    };
    run().catch(() => undefined); // Closed.
  }
}
