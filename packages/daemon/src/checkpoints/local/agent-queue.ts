/** One operation at a time per agent, in the order of the calls; different agents do not wait. */
export class AgentQueue {
  readonly #last = new Map<string, Promise<unknown>>();

  async run<T>(agent: string, work: () => Promise<T>): Promise<T> {
    const before = this.#last.get(agent) ?? Promise.resolve();
    const mine = before.then(work);
    const settled = mine.catch(() => undefined);
    this.#last.set(agent, settled);
    try {
      return await mine;
    } finally {
      if (this.#last.get(agent) === settled) this.#last.delete(agent);
    }
  }

  /** When everything begun so far has ended. */
  async idle(): Promise<void> {
    await Promise.all(this.#last.values());
  }
}
