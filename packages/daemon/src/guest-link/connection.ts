/**
 * A connection: reads from the first moment, discards until its own epoch has begun, then parses.
 *
 *   discarding --sync--> syncing --SYNCED--> open
 *       any state --close, end of the socket, violation--> closed
 *
 * A `sync` that fails leads back to discarding: the link is still read, and no epoch ever begins.
 */
import type { Duplex } from "node:stream";
import { PerdureError } from "@perdure/protocol";
import type { Clock } from "../core/ports/clock.ts";
import { startDeadline } from "./deadline.ts";
import { Epoch } from "./epoch.ts";
import { FrameParser } from "./frame.ts";
import { encodeResync, NONCE_BYTES, SyncedScanner } from "./resync.ts";
import { Transport } from "./transport.ts";
import { printable } from "./violation.ts";

/**
 * A guest that is told of the old connection's end after it has read RESYNC drops its answer. So RESYNC
 * is sent again, each time with a fresh nonce and after twice the time; the newest one alone counts.
 */
const GREET_AGAIN_MS = 500;

interface Syncing {
  readonly scanner: SyncedScanner;
  readonly done: (error?: PerdureError) => void;
}

export class Connection {
  readonly closed: Promise<string>;
  readonly #clock: Clock;
  readonly #transport: Transport;
  readonly #epoch: Epoch;
  readonly #parser: FrameParser;
  readonly #resolveClosed: (reason: string) => void;
  #state: "discarding" | "syncing" | "open" | "closed" = "discarding";
  #syncing: Syncing | undefined;
  #called = false;
  #cause: PerdureError | undefined;

  constructor(socket: Duplex, clock: Clock) {
    const { promise, resolve } = Promise.withResolvers<string>();
    this.closed = promise;
    this.#resolveClosed = resolve;
    this.#clock = clock;
    this.#transport = new Transport(socket, {
      received: (chunk) => this.#received(chunk),
      ended: (why, cause) => {
        const message = `The guest link is closed: ${why}`;
        this.#close(new PerdureError("guest_unreachable", message, { cause }), why);
      },
    });
    this.#epoch = new Epoch(this.#transport);
    this.#parser = new FrameParser((type, stream, payload) =>
      this.#epoch.receive(type, stream, payload),
    );
  }

  /** The epoch, once it has begun. @throws `guest_unreachable` before, and what closed the link after */
  get epoch(): Epoch {
    if (this.#cause !== undefined) throw this.#cause;
    if (this.#state !== "open") {
      throw new PerdureError("guest_unreachable", "The guest link was not synchronised");
    }
    return this.#epoch;
  }

  get droppedFrames(): number {
    return this.#epoch.droppedFrames;
  }

  async sync(generation: number, deadlineMs: number): Promise<void> {
    if (this.#cause !== undefined) throw this.#cause;
    if (this.#called) throw new PerdureError("internal", "A guest link is synchronised only once");
    this.#called = true;
    const { promise, resolve, reject } = Promise.withResolvers<undefined>();
    const done: Syncing["done"] = (error) =>
      error === undefined ? resolve(undefined) : reject(error);
    this.#state = "syncing";
    let discardedBytes = 0;
    const greet = (): void => {
      const nonce = this.#clock.randomBytes(NONCE_BYTES);
      const epoch = new DataView(this.#clock.randomBytes(4).buffer).getUint32(0, true);
      discardedBytes = this.#syncing?.scanner.discardedBytes ?? 0;
      this.#syncing = { scanner: new SyncedScanner(nonce, epoch, discardedBytes), done };
      this.#transport.send(encodeResync(nonce, epoch, generation));
    };
    let stopAgain = (): void => undefined;
    const again = (afterMs: number): void => {
      stopAgain = startDeadline(this.#clock, afterMs, () => {
        if (this.#state !== "syncing") return;
        greet();
        again(afterMs * 2);
      });
    };
    const stopDeadline = startDeadline(this.#clock, deadlineMs, () => {
      if (this.#state !== "syncing") return;
      this.#state = "discarding";
      const left = this.#syncing?.scanner.discardedBytes ?? discardedBytes;
      this.#synced(
        new PerdureError(
          "guest_timeout",
          `The guest did not answer RESYNC within ${deadlineMs} ms (${left} bytes of left-overs)`,
        ),
      );
    });
    const stop = (): void => {
      stopAgain();
      stopDeadline();
    };
    greet();
    again(GREET_AGAIN_MS);
    try {
      await promise;
    } finally {
      stop();
    }
  }

  hold(): void {
    this.#epoch.hold();
  }

  release(): void {
    this.#epoch.release();
  }

  close(reason: string): void {
    this.#close(
      new PerdureError("interrupted", `The guest link is closed: ${reason}`, {
        details: { reason },
      }),
      reason,
    );
  }

  #received(chunk: Uint8Array): void {
    try {
      this.#take(chunk);
    } catch (error) {
      const cause = PerdureError.from(error);
      this.#close(cause, `${cause.code}: ${printable(cause.message)}`);
    }
  }

  #take(chunk: Uint8Array): void {
    if (this.#state === "open") {
      this.#parser.push(chunk);
      return;
    }
    const rest = this.#syncing?.scanner.push(chunk) ?? null;
    if (rest === null) return;
    this.#state = "open";
    this.#epoch.version = this.#syncing?.scanner.version ?? 1;
    this.#synced();
    this.#parser.push(rest);
  }

  #synced(error?: PerdureError): void {
    const syncing = this.#syncing;
    this.#syncing = undefined;
    syncing?.done(error);
  }

  #close(cause: PerdureError, reason: string): void {
    if (this.#state === "closed") return;
    this.#state = "closed";
    this.#cause = cause;
    this.#transport.destroy();
    this.#synced(cause);
    this.#epoch.close(cause);
    this.#resolveClosed(reason);
  }
}
