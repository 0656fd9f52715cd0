/**
 * One life of a daemon. When it ends (as `kill -9` would end it), nothing that it asked for is answered
 * any more and nothing that it waits for happens: its promises stay open for ever and are forgotten.
 */
export class Life {
  /** Resolves when it is over. */
  readonly ended: Promise<void>;
  #over = false;
  #end: () => void = () => undefined;

  constructor() {
    this.ended = new Promise((resolve) => (this.#end = resolve));
  }

  get over(): boolean {
    return this.#over;
  }

  end(): void {
    this.#over = true;
    this.#end();
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
