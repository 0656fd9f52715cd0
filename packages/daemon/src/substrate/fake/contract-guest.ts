/** A guest for the contract suite of substrates: holds memory, writes records to the disk, ticks. */
import { createHash } from "node:crypto";
import type { GuestModel, GuestSeat } from "./guest-model.ts";

/** Ticks, monotonic clock and size of the disk, before what it holds. */
const HEADER_BYTES = 20;

export class ContractGuest implements GuestModel {
  readonly seat: GuestSeat;
  ticks = 0;
  /** Moved by nothing but the host. */
  monotonicMs = 0;
  /** As it was told last. */
  #diskBytes: number;
  #held: Uint8Array;
  #running = false;
  #waiting: (() => void)[] = [];

  constructor(seat: GuestSeat, saved: Uint8Array | null) {
    this.seat = seat;
    const view = saved === null ? null : new DataView(saved.buffer, saved.byteOffset);
    this.ticks = view?.getUint32(0) ?? 0;
    this.monotonicMs = view?.getFloat64(4) ?? 0;
    this.#diskBytes = view?.getFloat64(12) ?? seat.diskBytes;
    this.#held = saved?.slice(HEADER_BYTES) ?? new Uint8Array();
  }

  resume(): void {
    this.#running = true;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const goOn of waiting) goOn();
  }

  halt(): void {
    this.#running = false;
  }

  save(): Uint8Array {
    const all = new Uint8Array(HEADER_BYTES + this.#held.length);
    const view = new DataView(all.buffer);
    view.setUint32(0, this.ticks);
    view.setFloat64(4, this.monotonicMs);
    view.setFloat64(12, this.#diskBytes);
    all.set(this.#held, HEADER_BYTES);
    return all;
  }

  advance(ms: number): void {
    this.monotonicMs += ms;
  }

  diskGrown(bytes: number): void {
    this.#diskBytes = bytes;
  }

  end(): void {
    this.#running = false;
  }

  async runs(): Promise<void> {
    while (!this.#running) await new Promise<void>((goOn) => this.#waiting.push(goOn));
    this.ticks++;
  }

  hold(bytes: number, seed: number): string {
    this.#held = filled(bytes, seed);
    return this.held();
  }

  held(): string {
    return sha256(this.#held);
  }

  writeDisk(offset: number, bytes: number, seed: number): string {
    if (offset + bytes > this.#diskBytes) throw new Error("There is no room on the disk");
    const sum = sha256(filled(bytes, seed));
    this.seat.disk?.write(`${offset}+${bytes}`, sum);
    return sum;
  }

  readDisk(offset: number, bytes: number): string {
    return this.seat.disk?.read(`${offset}+${bytes}`) ?? "";
  }
}

/** Bytes of which no page is zero. */
function filled(bytes: number, seed: number): Uint8Array {
  const all = new Uint8Array(bytes);
  for (let i = 0, x = seed * 2654435761 + 1; i < bytes; i++) {
    x = (Math.imul(x, 1664525) + 1013904223) >>> 0;
    all[i] = x >>> 24;
  }
  return all;
}

function sha256(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}
