/**
 * Resynchronisation: RESYNC out, SYNCED found in whatever comes in, and the rule that RESYNC's magic
 * is never formed by anything else that the host sends.
 *
 * A frame may end with the first 14 or 15 bytes of the magic and be followed by a frame whose length
 * field begins with the missing ones (an END without fields has length 10, the magic's last byte). So
 * what is looked for and split is not the magic but its first 14 bytes.
 */
import { violation } from "./violation.ts";
import { PROTOCOL_VERSION } from "./operation.ts";

export const NONCE_BYTES = 16;
export const GREETING_BYTES = 48;
/** Bytes that may be thrown away while waiting for the answer to RESYNC. */
export const DISCARD_BYTES_MAX = 128 * 1024 * 1024;

const MAGIC_BYTES = 16;
const SPLIT_BYTES = 14;

export const resyncMagic = magic("PERDURE-RESYNC");
export const syncedMagic = magic("PERDURE-SYNCED");
const forbidden = resyncMagic.subarray(0, SPLIT_BYTES);

function magic(name: string): Buffer {
  return Buffer.concat([Buffer.of(0x89), Buffer.from(name, "latin1"), Buffer.of(0x0a)]);
}

export function encodeResync(nonce: Uint8Array, epoch: number, generation: number): Uint8Array {
  const greeting = new Uint8Array(GREETING_BYTES);
  greeting.set(resyncMagic, 0);
  greeting.set(nonce, MAGIC_BYTES);
  const view = new DataView(greeting.buffer);
  view.setUint32(32, PROTOCOL_VERSION, true);
  view.setUint32(36, epoch, true);
  view.setBigUint64(40, BigInt(generation), true);
  return greeting;
}

/** Finds the SYNCED that answers one RESYNC. */
export class SyncedScanner {
  readonly #needle: Buffer;
  readonly #epoch: number;
  #tail: Buffer = Buffer.alloc(0);
  #discardedBytes = 0;
  #version = 0;

  /** `discardedBytes`: what scanners of the same connection threw away before. */
  constructor(nonce: Uint8Array, epoch: number, discardedBytes = 0) {
    this.#discardedBytes = discardedBytes;
    this.#needle = Buffer.concat([syncedMagic, nonce]);
    this.#epoch = epoch;
  }

  get discardedBytes(): number {
    return this.#discardedBytes;
  }

  get version(): number {
    return this.#version;
  }

  /**
   * Takes the next bytes. Answers those that follow SYNCED, or null while it has not been found; then
   * `version` is what the guest chose.
   *
   * @throws `guest_protocol_violation` where it says something else than it must, or does not come
   * within `DISCARD_BYTES_MAX`
   */
  push(chunk: Uint8Array): Uint8Array | null {
    const bytes = Buffer.concat([this.#tail, chunk]);
    const at = bytes.indexOf(this.#needle);
    if (at >= 0 && bytes.length - at >= GREETING_BYTES) {
      this.#discardedBytes += at;
      this.#check(bytes.subarray(at + MAGIC_BYTES + NONCE_BYTES, at + GREETING_BYTES));
      return bytes.subarray(at + GREETING_BYTES);
    }
    const kept = Math.max(0, at >= 0 ? at : bytes.length - GREETING_BYTES + 1);
    this.#discardedBytes += kept;
    this.#tail = bytes.subarray(kept);
    if (this.#discardedBytes > DISCARD_BYTES_MAX) {
      throw violation(`no answer to RESYNC within ${DISCARD_BYTES_MAX} bytes`);
    }
    return null;
  }

  #check(rest: Buffer): void {
    const version = rest.readUInt32LE(0);
    if (version < 1 || version > PROTOCOL_VERSION) throw violation(`version ${version} was chosen`);
    if (rest.readUInt32LE(4) !== this.#epoch) throw violation("SYNCED names another epoch");
    if (rest.readBigUInt64LE(8) !== 0n) throw violation("a reserved part of SYNCED is not zero");
    this.#version = version;
  }
}

/** Where `payload` must be cut so that no frame holds what could become RESYNC's magic; ascending. */
export function splitPoints(payload: Uint8Array): number[] {
  const points: number[] = [];
  const bytes = asBuffer(payload);
  let at = bytes.indexOf(forbidden);
  while (at >= 0) {
    points.push(at + SPLIT_BYTES / 2);
    at = bytes.indexOf(forbidden, at + SPLIT_BYTES);
  }
  return points;
}

/** Whether a payload that cannot be split may be sent. */
export function isSendable(payload: Uint8Array): boolean {
  return !asBuffer(payload).includes(forbidden);
}

function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
