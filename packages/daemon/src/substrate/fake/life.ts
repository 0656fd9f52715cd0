/**
 * One life of a daemon. When it ends (as `kill -9` would end it), nothing that it asked for is answered
 * any more and nothing that it waits for happens: its promises stay open for ever and are forgotten.
 */
export class Life {
  #over = false;

  get over(): boolean {
    return this.#over;
  }

  end(): void {
    this.#over = true;
  }

  /** Goes on in the same life only. */
  async pass(): Promise<void> {
    await Promise.resolve();
    if (this.#over) await never;
  }

  /** The outcome of `work`, unless the life ends first. */
  async during<T>(work: () => Promise<T> | T): Promise<T> {
    await this.pass();
    try {
      return await work();
    } finally {
      await this.pass();
    }
  }
}

const never = new Promise<never>(() => undefined);
