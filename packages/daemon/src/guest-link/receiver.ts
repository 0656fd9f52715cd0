/**
 * The receiving end of a stream of DATA, under credit: what the consumer has not taken is not asked
 * for. Holds at most `WINDOW_BYTES`.
 */
import { PieceQueue } from "./piece-queue.ts";
import type { Stream } from "./stream.ts";

/** Credit that the guest holds for a stream that nobody consumes. */
export const WINDOW_BYTES = 256 * 1024;
/** Credit is given back in portions of this. */
const GRANT_BYTES = WINDOW_BYTES / 4;

interface Waiter {
  readonly resolve: (piece: Uint8Array | null) => void;
  readonly reject: (error: Error) => void;
}

export class Receiver {
  readonly #queue = new PieceQueue();
  readonly #waiters: Waiter[] = [];
  #stream: Stream | undefined;
  #owedBytes = 0;
  #over: { readonly error: Error | null } | undefined;

  /** Gives the first credit. */
  start(stream: Stream): void {
    this.#stream = stream;
    stream.grant(WINDOW_BYTES);
  }

  push(piece: Uint8Array): void {
    const waiter = this.#waiters.shift();
    if (waiter === undefined) {
      this.#queue.push(piece);
      return;
    }
    waiter.resolve(piece.slice());
    this.#taken(piece.length);
  }

  /** No more comes. What was received is handed out first, then null, or `error`. */
  finish(error: Error | null): void {
    if (this.#over !== undefined) return;
    this.#over = { error };
    for (const waiter of this.#waiters.splice(0)) settle(waiter, error);
  }

  /** The next piece; null at the end. */
  take(): Promise<Uint8Array | null> {
    const piece = this.#queue.shift();
    if (piece !== undefined) {
      this.#taken(piece.length);
      return Promise.resolve(piece);
    }
    return new Promise((resolve, reject) => {
      const waiter = { resolve, reject };
      if (this.#over === undefined) this.#waiters.push(waiter);
      else settle(waiter, this.#over.error);
    });
  }

  /** The consumer left: nothing is kept, whoever waits gets null. */
  stop(): void {
    this.#queue.clear();
    this.finish(null);
    this.#over = { error: null };
    this.#stream?.cancel();
  }

  #taken(bytes: number): void {
    this.#owedBytes += bytes;
    if (this.#owedBytes < GRANT_BYTES) return;
    this.#stream?.grant(this.#owedBytes);
    this.#owedBytes = 0;
  }
}

function settle(waiter: Waiter, error: Error | null): void {
  if (error === null) waiter.resolve(null);
  else waiter.reject(error);
}
