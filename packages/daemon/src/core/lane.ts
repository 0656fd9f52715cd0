/**
 * Lane: the order of work on one agent.
 *
 * Verbs that change what the agent is (sleep, wake, stop, remove…) are exclusive and run one at a
 * time in the order they came. Calls into an awake agent (exec, signal, files) are shared: they run
 * side by side, never beside an exclusive one. First come, first served: nobody starves.
 *
 * An exclusive verb whose rest does not concern calls lets them in (`letCallsIn`): other verbs still wait.
 *
 * An exclusive verb can see that someone waits behind it (`waiting`): that is how a call which arrives
 * while the agent is falling asleep cancels the sleep.
 */
interface Turn {
  readonly exclusive: boolean;
  readonly urgent: boolean;
  readonly start: () => void;
}

export class Lane {
  #queue: Turn[] = [];
  readonly #onWaiting = new Set<() => void>();
  #sharedRunning = 0;
  /** The exclusive verb under way, and whether calls run beside it. */
  #exclusive: "none" | "alone" | "with-calls" = "none";

  /** Calls waiting that would rather have the agent awake. */
  get waiting(): number {
    return this.#queue.filter((turn) => turn.urgent).length;
  }

  /** Calls `listener` whenever someone begins to wait, and now where someone does. Returns the undo. */
  onWaiting(listener: () => void): () => void {
    this.#onWaiting.add(listener);
    if (this.#queue.length > 0) listener();
    return () => this.#onWaiting.delete(listener);
  }

  /** Whether a verb has the lane or waits for it. */
  get isExclusive(): boolean {
    return this.#exclusive !== "none" || this.#queue.some((turn) => turn.exclusive);
  }

  get idle(): boolean {
    return this.#queue.length === 0 && this.#sharedRunning === 0 && this.#exclusive === "none";
  }

  /** Runs `work` alone. `urgent`: its caller wants the agent awake (a wake, say). */
  async exclusive<T>(work: () => Promise<T>, urgent = false): Promise<T> {
    await this.#enter(true, urgent);
    try {
      return await work();
    } finally {
      this.#exclusive = "none";
      this.#admit();
    }
  }

  /** Says, for the exclusive verb under way, that what is left of it does not concern calls. */
  letCallsIn(): void {
    if (this.#exclusive !== "alone") return;
    this.#exclusive = "with-calls";
    this.#admit();
  }

  /** Runs `work` beside other shared work. */
  async shared<T>(work: () => Promise<T>): Promise<T> {
    await this.#enter(false, true);
    try {
      return await work();
    } finally {
      this.#sharedRunning--;
      this.#admit();
    }
  }

  #enter(exclusive: boolean, urgent: boolean): Promise<void> {
    return new Promise((start) => {
      const turn = { exclusive, urgent, start };
      this.#queue.push(turn);
      this.#admit();
      if (this.#queue.includes(turn)) for (const listener of [...this.#onWaiting]) listener();
    });
  }

  #admit(): void {
    for (;;) {
      const next = this.#queue[0];
      if (next === undefined || this.#exclusive === "alone") return;
      if (next.exclusive && (this.#sharedRunning > 0 || this.#exclusive !== "none")) return;
      this.#queue.shift();
      if (next.exclusive) this.#exclusive = "alone";
      else this.#sharedRunning++;
      next.start();
    }
  }
}
