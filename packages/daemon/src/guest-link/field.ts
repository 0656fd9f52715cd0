/**
 * Fields: the tag-length-value lists in requests, responses and events.
 *
 * The reader is total: whatever the bytes, it answers a list or throws `guest_protocol_violation`.
 * Its work and memory are bounded by the payload, which is bounded by the frame.
 */
import { PerdureError } from "@perdure/protocol";
import { violation } from "./violation.ts";

const HEADER_BYTES = 6;
const U64_MAX = 2n ** 64n - 1n;
const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const tolerant = new TextDecoder("utf-8", { ignoreBOM: true });

/** Builds a list of fields in the order of the calls. */
export class FieldWriter {
  readonly #parts: Uint8Array[] = [];
  #bytes = 0;

  /** Adds nothing where `value` is undefined, as do all the others. */
  number(tag: number, value: number | bigint | undefined): this {
    if (value === undefined) return this;
    if (typeof value === "number" && !Number.isSafeInteger(value)) throw outOfRange(value);
    const wide = BigInt(value);
    if (wide < 0n || wide > U64_MAX) throw outOfRange(value);
    const bytes = new Uint8Array(8);
    new DataView(bytes.buffer).setBigUint64(0, wide, true);
    return this.bytes(tag, bytes);
  }

  signed(tag: number, value: bigint): this {
    if (BigInt.asIntN(64, value) !== value) throw outOfRange(value);
    const bytes = new Uint8Array(8);
    new DataView(bytes.buffer).setBigInt64(0, value, true);
    return this.bytes(tag, bytes);
  }

  flag(tag: number, value: boolean | undefined): this {
    return value === undefined ? this : this.number(tag, value ? 1 : 0);
  }

  string(tag: number, value: string | undefined): this {
    if (value === undefined) return this;
    if (!value.isWellFormed()) {
      throw new PerdureError("bad_request", "Cannot send text that is not valid Unicode");
    }
    return this.bytes(tag, encoder.encode(value));
  }

  bytes(tag: number, value: Uint8Array): this {
    const header = new Uint8Array(HEADER_BYTES);
    const view = new DataView(header.buffer);
    view.setUint16(0, tag, true);
    view.setUint32(2, value.length, true);
    this.#parts.push(header, value);
    this.#bytes += HEADER_BYTES + value.length;
    return this;
  }

  nested(tag: number, value: FieldWriter): this {
    return this.bytes(tag, value.finish());
  }

  /** The fields of `other` after these. */
  add(other: FieldWriter): this {
    this.#parts.push(...other.#parts);
    this.#bytes += other.#bytes;
    return this;
  }

  finish(): Uint8Array {
    const whole = new Uint8Array(this.#bytes);
    let at = 0;
    for (const part of this.#parts) {
      whole.set(part, at);
      at += part.length;
    }
    return whole;
  }
}

function outOfRange(value: number | bigint): PerdureError {
  return new PerdureError("bad_request", `Cannot send the number ${value}: it is out of range`);
}

/** A parsed list. Values stay views of the bytes it was parsed from. */
export class Fields {
  readonly #values: ReadonlyMap<number, readonly Uint8Array[]>;

  private constructor(values: ReadonlyMap<number, readonly Uint8Array[]>) {
    this.#values = values;
  }

  static parse(payload: Uint8Array): Fields {
    const view = new DataView(payload.buffer, payload.byteOffset, payload.byteLength);
    const values = new Map<number, Uint8Array[]>();
    let at = 0;
    while (at < payload.length) {
      if (payload.length - at < HEADER_BYTES) throw violation("a field's header is cut short");
      const tag = view.getUint16(at, true);
      const length = view.getUint32(at + 2, true);
      at += HEADER_BYTES;
      if (length > payload.length - at) throw violation(`field ${tag} is longer than its frame`);
      const value = payload.subarray(at, at + length);
      const list = values.get(tag);
      if (list === undefined) values.set(tag, [value]);
      else list.push(value);
      at += length;
    }
    return new Fields(values);
  }

  /** A field that does not repeat. */
  optionalBytes(tag: number): Uint8Array | undefined {
    const list = this.#values.get(tag);
    if (list === undefined) return undefined;
    if (list.length > 1) throw violation(`field ${tag} repeats`);
    return list[0];
  }

  bytes(tag: number): Uint8Array {
    const value = this.optionalBytes(tag);
    if (value === undefined) throw violation(`field ${tag} is missing`);
    return value;
  }

  /** All 64 bits; for nanoseconds, which do not fit a number. */
  wide(tag: number): bigint {
    const value = this.bytes(tag);
    if (value.length !== 8) throw violation(`field ${tag} is not a number`);
    return new DataView(value.buffer, value.byteOffset, 8).getBigUint64(0, true);
  }

  /** An integer from 0 to `max`, at most 2^53 − 1. */
  number(tag: number, max: number = Number.MAX_SAFE_INTEGER): number {
    const value = this.wide(tag);
    if (value > BigInt(max)) throw violation(`field ${tag} is ${value}, above ${max}`);
    return Number(value);
  }

  optionalNumber(tag: number, max?: number): number | undefined {
    return this.#values.has(tag) ? this.number(tag, max) : undefined;
  }

  flag(tag: number): boolean {
    return this.number(tag, 1) === 1;
  }

  string(tag: number, bytesMax = 65_536): string {
    return text(tag, this.bytes(tag), bytesMax);
  }

  optionalString(tag: number, bytesMax?: number): string | undefined {
    return this.#values.has(tag) ? this.string(tag, bytesMax) : undefined;
  }

  /** Text that a program inside may have made: what is not UTF-8 in it becomes U+FFFD. */
  anyString(tag: number, bytesMax: number): string {
    return tolerant.decode(checked(tag, this.bytes(tag), bytesMax));
  }

  has(tag: number): boolean {
    return this.#values.has(tag);
  }

  strings(tag: number, countMax: number): string[] {
    return this.#list(tag, countMax).map((value) => text(tag, value, 65_536));
  }

  nested(tag: number, countMax: number): Fields[] {
    return this.#list(tag, countMax).map((value) => Fields.parse(value));
  }

  #list(tag: number, countMax: number): readonly Uint8Array[] {
    const list = this.#values.get(tag) ?? [];
    if (list.length > countMax) {
      throw violation(`field ${tag} repeats ${list.length} times, at most ${countMax} are allowed`);
    }
    return list;
  }
}

function checked(tag: number, value: Uint8Array, bytesMax: number): Uint8Array {
  if (value.length > bytesMax) {
    throw violation(`field ${tag} has ${value.length} bytes, at most ${bytesMax} are allowed`);
  }
  return value;
}

function text(tag: number, value: Uint8Array, bytesMax: number): string {
  const bytes = checked(tag, value, bytesMax);
  try {
    return decoder.decode(bytes);
  } catch {
    throw violation(`field ${tag} is not valid UTF-8`);
  }
}
