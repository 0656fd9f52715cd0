/**
 * The byte stream to the guest: always being read, never for long at a time, and with a bound on what
 * waits to be sent.
 *
 * Reading never waits for a consumer. A guest that floods is read in turns, so that the main loop gets
 * to everything else in between.
 */
import type { Duplex } from "node:stream";

/** Bytes taken in before the main loop has its turn; a few milliseconds of the smallest frames. */
export const TURN_BYTES = 512 * 1024;
/** Senders of bulk data wait while more than this is unsent, so that a request is never far behind. */
export const BULK_QUEUE_BYTES = 256 * 1024;
/** New requests are refused while more than this is unsent: the guest does not read. */
export const REQUEST_QUEUE_BYTES_MAX = 8 * 1024 * 1024;
/** Beyond this the link is given up. */
export const QUEUE_BYTES_MAX = 16 * 1024 * 1024;

export interface TransportEvents {
  received(chunk: Uint8Array): void;
  /** The other side is gone; `cause` is what the system said. Called once, not after `destroy`. */
  ended(reason: string, cause?: Error): void;
}

export class Transport {
  readonly #socket: Duplex;
  readonly #events: TransportEvents;
  #turnBytes = 0;
  #collecting = false;
  #open = true;
  #waiting: (() => void)[] = [];

  constructor(socket: Duplex, events: TransportEvents) {
    this.#socket = socket;
    this.#events = events;
    socket.on("data", (chunk: Uint8Array) => this.#received(chunk));
    socket.on("end", () => this.#ended("the VM closed the link"));
    socket.on("close", () => this.#ended("the link was closed"));
    socket.on("error", (error) => this.#ended("the link broke", error));
  }

  get queuedBytes(): number {
    return this.#socket.writableLength;
  }

  send(frame: Uint8Array): void {
    if (!this.#open) return;
    this.#collect();
    this.#socket.write(frame, () => this.#sent());
    if (this.queuedBytes > QUEUE_BYTES_MAX) this.#ended("the guest does not read the link");
  }

  /** Frames that are sent together leave together: the guest wakes once, and answers once. */
  #collect(): void {
    if (this.#collecting) return;
    this.#collecting = true;
    this.#socket.cork();
    process.nextTick(() => this.#leave());
  }

  #leave(): void {
    if (!this.#collecting) return;
    this.#collecting = false;
    this.#socket.uncork();
  }

  /** Resolves when bulk data may be sent, or the link is closed. */
  async drained(): Promise<void> {
    while (this.#open && this.queuedBytes > BULK_QUEUE_BYTES) {
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
  }

  destroy(): void {
    if (!this.#open) return;
    this.#open = false;
    this.#leave();
    this.#socket.destroy();
    this.#release();
  }

  #received(chunk: Uint8Array): void {
    if (!this.#open) return;
    if (this.#turnBytes === 0) setImmediate(() => this.#nextTurn());
    this.#turnBytes += chunk.length;
    if (this.#turnBytes >= TURN_BYTES) this.#socket.pause();
    this.#events.received(chunk);
  }

  #nextTurn(): void {
    this.#turnBytes = 0;
    if (this.#open) this.#socket.resume();
  }

  #sent(): void {
    if (this.queuedBytes <= BULK_QUEUE_BYTES) this.#release();
  }

  #release(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve();
  }

  #ended(reason: string, cause?: Error): void {
    if (!this.#open) return;
    this.destroy();
    this.#events.ended(reason, cause);
  }
}
