/**
 * An operation whose result is a stream of records, as an iterable under credit.
 *
 * What the guest sends is checked when it comes, so that a malformed record closes the link, and decoded when
 * it is taken. The iterator is written out and not a generator, because leaving must not wait for a record
 * that never comes.
 */
import { PerdureError } from "@perdure/protocol";
import type { Clock } from "../core/ports/clock.ts";
import { answerError, timeoutError } from "./call.ts";
import { PROGRESS_DEADLINE_MS, startDeadline, USER_DEADLINE_MS } from "./deadline.ts";
import type { Epoch } from "./epoch.ts";
import type { Fields, FieldWriter } from "./field.ts";
import type { Operation } from "./operation.ts";
import { Receiver } from "./receiver.ts";
import { RecordParser, recordFields } from "./record.ts";
import type { Stream, StreamEvents } from "./stream.ts";
import { requireVersion } from "./version.ts";

export interface RecordSource<T> {
  readonly op: Operation;
  /** As it reads after "Cannot". */
  readonly action: string;
  /** What is sent; may throw what is wrong with what was asked for. */
  readonly fields: () => FieldWriter;
  readonly decode: (fields: Fields) => T;
  /** Comes once the guest has answered that it began, before the first record. */
  readonly first?: T;
  /** Whether the guest may be silent for as long as it likes. */
  readonly endless: boolean;
  /**
   * A control operation, begun by `begin` before the link is let out; no record is asked for before the first
   * `next`. Default: false
   */
  readonly control?: boolean;
  /** How long the guest may take to begin, milliseconds. Default: as long as a user's operation. */
  readonly beginMs?: number;
  /** What the reader gets when the link closes. Default: what closed it. */
  readonly interrupted?: (cause: PerdureError) => PerdureError;
}

export class RecordReader<T> implements AsyncIterableIterator<T, undefined> {
  readonly #epoch: () => Epoch;
  readonly #clock: Clock;
  readonly #source: RecordSource<T>;
  readonly #receiver = new Receiver();
  readonly #parser = new RecordParser();
  /** True once the guest answered that it began, false where it ended before. */
  readonly #begun = Promise.withResolvers<boolean>();
  #stream: Stream | undefined;
  #started = false;
  #asks = false;
  #firstDue: boolean;

  constructor(epoch: () => Epoch, clock: Clock, source: RecordSource<T>) {
    this.#epoch = epoch;
    this.#clock = clock;
    this.#source = source;
    this.#firstDue = source.first !== undefined;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** Resolves once the guest has answered that it began. @throws why it did not */
  async begin(): Promise<void> {
    if (!this.#started) this.#start();
    if (!(await this.#begun.promise)) await this.#receiver.take();
  }

  async next(): Promise<IteratorResult<T, undefined>> {
    if (!this.#started) this.#start();
    this.#ask();
    const { first, decode } = this.#source;
    if (this.#firstDue && first !== undefined) {
      this.#firstDue = false;
      if (await this.#begun.promise) return { done: false, value: first };
    }
    const record = await this.#take();
    return record === null
      ? { done: true, value: undefined }
      : { done: false, value: decode(recordFields(record)) };
  }

  return(): Promise<IteratorResult<T, undefined>> {
    this.#started = true;
    this.#firstDue = false;
    this.#receiver.stop();
    this.#begun.resolve(false);
    return Promise.resolve({ done: true, value: undefined });
  }

  async #take(): Promise<Uint8Array | null> {
    if (this.#source.endless) return this.#receiver.take();
    const stop = startDeadline(this.#clock, PROGRESS_DEADLINE_MS, () => {
      this.#stream?.cancel();
      this.#receiver.finish(timeoutError(this.#source.action, PROGRESS_DEADLINE_MS));
    });
    try {
      return await this.#receiver.take();
    } finally {
      stop();
    }
  }

  #start(): void {
    this.#started = true;
    const { op, action, beginMs = USER_DEADLINE_MS } = this.#source;
    const stop = startDeadline(this.#clock, beginMs, () => {
      this.#stream?.cancel();
      this.#fail(timeoutError(action, beginMs));
    });
    void this.#begun.promise.then(stop);
    try {
      const epoch = this.#epoch();
      requireVersion(epoch, op, action);
      const fields = this.#source.fields().finish();
      const { control = false } = this.#source;
      this.#stream = epoch.open(op, fields, { control, action }, this.#events());
    } catch (error) {
      this.#fail(PerdureError.from(error));
    }
  }

  /** Gives the first credit. */
  #ask(): void {
    if (this.#asks || this.#stream === undefined) return;
    this.#asks = true;
    this.#receiver.start(this.#stream);
  }

  #fail(error: PerdureError): void {
    this.#receiver.finish(error);
    this.#begun.resolve(false);
  }

  #events(): StreamEvents {
    const { action, decode } = this.#source;
    return {
      response: (status, fields) => {
        if (status === 0) this.#begun.resolve(true);
        else this.#fail(answerError(action, status, fields));
      },
      data: (payload) => {
        for (const record of this.#parser.push(payload)) {
          decode(recordFields(record));
          this.#receiver.push(record);
        }
      },
      end: (status, fields) => {
        if (status !== 0) {
          this.#receiver.finish(answerError(action, status, fields));
          return;
        }
        this.#parser.end();
        this.#receiver.finish(null);
      },
      closed: (cause) => this.#fail(this.#source.interrupted?.(cause) ?? cause),
    };
  }
}
