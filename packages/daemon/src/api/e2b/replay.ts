/**
 * Bytes that may be begun twice: whoever takes them first may be refused after the first of them. What was taken is
 * kept up to a bound, beyond which nobody can begin anew.
 */
const KEPT_BYTES_MAX = 2 * 1024 * 1024;

export class Replay {
  readonly #from: AsyncIterator<Uint8Array>;
  #kept: Uint8Array[] | null = [];
  #keptBytes = 0;

  constructor(bytes: AsyncIterable<Uint8Array>) {
    this.#from = bytes[Symbol.asyncIterator]();
  }

  get canBegin(): boolean {
    return this.#kept !== null;
  }

  /** From the beginning. Leaving it ends nothing. @throws where it cannot be begun any more */
  async *bytes(): AsyncGenerator<Uint8Array> {
    if (this.#kept === null) throw new Error("What came first is not kept any more");
    yield* this.#kept;
    for (;;) {
      const next = await this.#from.next();
      if (next.done === true) return;
      this.#keep(next.value);
      yield next.value;
    }
  }

  /** Nothing more is wanted. */
  async end(): Promise<void> {
    this.#kept = null;
    await this.#from.return?.();
  }

  #keep(chunk: Uint8Array): void {
    if (this.#kept === null) return;
    this.#keptBytes += chunk.length;
    if (this.#keptBytes > KEPT_BYTES_MAX) this.#kept = null;
    else this.#kept.push(chunk);
  }
}
