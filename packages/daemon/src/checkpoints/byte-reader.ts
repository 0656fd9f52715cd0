/**
 * Reads bytes and LEB128 varints within bounds. Every violation is the same typed error, made by the
 * caller's `fail`, so that no damaged input ends in a RangeError or an endless loop.
 */
export class ByteReader {
  readonly #bytes: Uint8Array;
  readonly #fail: (message: string) => Error;
  #position = 0;

  constructor(bytes: Uint8Array, fail: (message: string) => Error) {
    this.#bytes = bytes;
    this.#fail = fail;
  }

  get remaining(): number {
    return this.#bytes.length - this.#position;
  }

  byte(): number {
    const value = this.#bytes[this.#position];
    if (value === undefined) throw this.#fail("it ends too early");
    this.#position++;
    return value;
  }

  /** A varint of at most `max`; an encoding longer than needed is refused. */
  varint(max: number, what: string): number {
    let value = 0;
    let scale = 1;
    for (let i = 0; i < 8; i++) {
      const next = this.byte();
      value += (next & 127) * scale;
      if (next < 128) {
        if (next === 0 && i > 0) throw this.#fail(`${what} is not in its shortest form`);
        if (value > max) throw this.#fail(`${what} is out of range`);
        return value;
      }
      scale *= 128;
    }
    throw this.#fail(`${what} is out of range`);
  }

  /** A zigzag integer of at most `max` either way. */
  signed(max: number, what: string): number {
    const value = this.varint(2 * max, what);
    return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
  }

  /** A view, not a copy. */
  bytes(count: number): Uint8Array {
    if (count > this.remaining) throw this.#fail("it ends too early");
    this.#position += count;
    return this.#bytes.subarray(this.#position - count, this.#position);
  }

  ascii(count: number): string {
    return Buffer.from(this.bytes(count)).toString("latin1");
  }

  end(): void {
    if (this.remaining > 0) throw this.#fail("bytes follow its end");
  }
}
