/** The sending end of a stream of DATA: as much as the guest has asked for, never more. */
import { PerdureError } from "@perdure/protocol";
import { answerError } from "./call.ts";
import type { Epoch } from "./epoch.ts";
import type { Fields } from "./field.ts";
import type { Stream, StreamEvents } from "./stream.ts";
import { violation } from "./violation.ts";

export class Sender {
  readonly events: StreamEvents;
  readonly #epoch: Epoch;
  readonly #action: string;
  /** Settles with the guest's answer; one reader at a time waits on it. */
  #outcome: { readonly error: PerdureError } | { readonly fields: Fields } | undefined;
  #ended: PerdureError | undefined;
  readonly #onEnded: (() => void) | undefined;
  #changed: () => void = () => undefined;
  #stream: Stream | undefined;
  #hostEnded = false;

  /** `ended` where the guest, too, may end the data: called once, when the stream is over. */
  constructor(epoch: Epoch, action: string, ended?: () => void) {
    this.#epoch = epoch;
    this.#action = action;
    this.events = {
      response: (status, fields) => this.#respond(status, fields),
      window: () => this.#changed(),
      closed: (cause) => this.#stop(cause),
      ...(ended && { end: (status: number, fields: Fields) => this.#end(status, fields) }),
    };
    this.#onEnded = ended;
  }

  start(stream: Stream): void {
    this.#stream = stream;
  }

  /** Why nothing more can be sent; undefined while it can. */
  get failure(): PerdureError | undefined {
    if (this.#ended !== undefined) return this.#ended;
    return this.#outcome !== undefined && "error" in this.#outcome
      ? this.#outcome.error
      : undefined;
  }

  /** Sends all of `bytes`; resolves when the guest had room for the last one. @throws `failure` */
  async send(bytes: Uint8Array): Promise<void> {
    let rest = bytes;
    while (rest.length > 0) {
      if (this.failure !== undefined) throw this.failure;
      const room = this.#stream?.sendable ?? 0;
      if (room === 0) {
        await this.#change();
        continue;
      }
      this.#stream?.send(rest.subarray(0, room));
      rest = rest.subarray(room);
      await this.#epoch.drained();
    }
  }

  /** The guest's answer. @throws `failure` */
  async answer(): Promise<Fields> {
    for (;;) {
      if (this.failure !== undefined) throw this.failure;
      if (this.#outcome !== undefined && "fields" in this.#outcome) return this.#outcome.fields;
      await this.#change();
    }
  }

  /** `work`, unless the stream fails first. */
  async orFailure<T>(work: Promise<T>): Promise<T> {
    const state = { settled: false };
    const settle = (): void => {
      state.settled = true;
      this.#changed();
    };
    work.then(settle, settle);
    while (!state.settled) {
      if (this.failure !== undefined) throw this.failure;
      await this.#change();
    }
    return work;
  }

  /** Gives up with `error`, unless it is over already. */
  fail(error: PerdureError): void {
    this.#stream?.cancel();
    this.#stop(error);
  }

  end(): void {
    this.#hostEnded = true;
    this.#stream?.end();
  }

  abandon(): void {
    this.#stream?.abandon();
  }

  #respond(status: number, fields: Fields): void {
    // Where only the host ends the data, ok is the answer to all of it.
    if (status === 0 && this.#onEnded === undefined && !this.#hostEnded) {
      throw violation("ok before the end of the data");
    }
    this.#outcome =
      status === 0 ? { fields } : { error: answerError(this.#action, status, fields) };
    this.#changed();
  }

  #end(status: number, fields: Fields): void {
    this.#stop(
      status === 0
        ? new PerdureError("stdin_closed", `Cannot ${this.#action}: the guest takes no more`)
        : answerError(this.#action, status, fields),
    );
  }

  #stop(error: PerdureError): void {
    if (this.#ended !== undefined) return;
    this.#ended = error;
    this.#changed();
    this.#onEnded?.();
  }

  #change(): Promise<void> {
    return new Promise((resolve) => {
      this.#changed = resolve;
    });
  }
}
