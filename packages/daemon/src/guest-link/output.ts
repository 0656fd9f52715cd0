/**
 * Attach: a process's output as an iterable.
 *
 * Every piece begins where the one before ended, from the offset asked for on: a guest that leaves a
 * gap, repeats or goes back breaks the protocol. The iterator is written out and not a generator,
 * because leaving must not wait for a piece that never comes.
 */
import { PerdureError } from "@perdure/protocol";
import type { Clock } from "../core/ports/clock.ts";
import type { OutputPiece } from "../core/ports/guest-link.ts";
import { answerError, timeoutError } from "./call.ts";
import { startDeadline, USER_DEADLINE_MS } from "./deadline.ts";
import type { Epoch } from "./epoch.ts";
import { decodeExit } from "./exit.ts";
import { FieldWriter, type Fields } from "./field.ts";
import { operation, tag } from "./operation.ts";
import { Receiver } from "./receiver.ts";
import type { Stream, StreamEvents } from "./stream.ts";
import { violation } from "./violation.ts";

const HEADER_BYTES = 16;
const CUT_BYTES = HEADER_BYTES + 16;
const channel = { cut: 0, stdout: 1, stderr: 2 } as const;

export class OutputReader implements AsyncIterableIterator<OutputPiece, undefined> {
  readonly #epoch: () => Epoch;
  readonly #clock: Clock;
  readonly #process: number;
  readonly #receiver = new Receiver();
  /** Where the next byte from the guest must stand. */
  #offset: number;
  #exit: OutputPiece | undefined;
  #started = false;
  #answered: () => void = () => undefined;

  constructor(epoch: () => Epoch, clock: Clock, process: number, offset: number) {
    this.#epoch = epoch;
    this.#clock = clock;
    this.#process = process;
    this.#offset = offset;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(): Promise<IteratorResult<OutputPiece, undefined>> {
    if (!this.#started) this.#start();
    const payload = await this.#receiver.take();
    if (payload !== null) return { done: false, value: decodePiece(payload) };
    const exit = this.#exit;
    this.#exit = undefined;
    return exit === undefined ? { done: true, value: undefined } : { done: false, value: exit };
  }

  return(): Promise<IteratorResult<OutputPiece, undefined>> {
    this.#started = true;
    this.#exit = undefined;
    this.#answered();
    this.#receiver.stop();
    return Promise.resolve({ done: true, value: undefined });
  }

  #start(): void {
    this.#started = true;
    const action = `read the output of process ${this.#process} from ${this.#offset} on`;
    let stream: Stream | undefined;
    this.#answered = startDeadline(this.#clock, USER_DEADLINE_MS, () => {
      stream?.cancel();
      this.#receiver.finish(timeoutError(action, USER_DEADLINE_MS));
    });
    try {
      const fields = new FieldWriter()
        .number(tag.process, this.#process)
        .number(tag.offset, this.#offset);
      const options = { control: false, action };
      const events = this.#events(action, () => stream?.cancel());
      stream = this.#epoch().open(operation.attach, fields.finish(), options, events);
      this.#receiver.start(stream);
    } catch (error) {
      this.#answered();
      this.#receiver.finish(PerdureError.from(error));
    }
  }

  #events(action: string, cancel: () => void): StreamEvents {
    return {
      response: (status, fields) => {
        this.#answered();
        if (status !== 0) {
          this.#receiver.finish(answerError(action, status, fields));
          return;
        }
        const logEnd = fields.number(tag.logEnd);
        if (fields.number(tag.logStart) > logEnd)
          throw violation("a log that ends before it starts");
        if (this.#offset <= logEnd) return;
        cancel();
        this.#receiver.finish(
          new PerdureError("bad_request", `Cannot ${action}: the output ends at ${logEnd}`, {
            details: { logEnd },
          }),
        );
      },
      data: (payload) => {
        this.#offset = checkPiece(payload, this.#offset);
        this.#receiver.push(payload);
      },
      end: (status, fields) => this.#end(action, status, fields),
      closed: (cause) => {
        this.#answered();
        this.#receiver.finish(this.#interrupted(cause));
      },
    };
  }

  #end(action: string, status: number, fields: Fields): void {
    if (status !== 0) {
      this.#receiver.finish(answerError(action, status, fields));
      return;
    }
    this.#exit = { type: "exit", ...decodeExit(fields), timedOut: decodeTimedOut(fields) };
    this.#receiver.finish(null);
  }

  #interrupted(cause: PerdureError): PerdureError {
    const reason = cause.details["reason"] ?? cause.code;
    return new PerdureError(
      "interrupted",
      `The output of process ${this.#process} was interrupted at ${this.#offset}: ${cause.message}`,
      {
        hint: `Read on from offset ${this.#offset} when the agent is awake.`,
        details: { offset: this.#offset, reason },
        cause,
      },
    );
  }
}

export function decodeTimedOut(fields: Fields): boolean {
  return fields.optionalNumber(tag.timedOut, 1) === 1;
}

/** The offset after this piece. @throws `guest_protocol_violation` where it does not begin at `offset` */
function checkPiece(payload: Uint8Array, offset: number): number {
  if (payload.length <= HEADER_BYTES) throw violation("output without bytes");
  const view = new DataView(payload.buffer, payload.byteOffset, payload.byteLength);
  for (let i = 1; i < 8; i++) if (payload[i] !== 0) throw violation("output with a filled gap");
  let from = view.getBigUint64(8, true);
  let to = from + BigInt(payload.length - HEADER_BYTES);
  switch (payload[0]) {
    case channel.stdout:
    case channel.stderr:
      break;
    case channel.cut:
      if (payload.length !== CUT_BYTES) throw violation("a cut of another length");
      from = view.getBigUint64(HEADER_BYTES, true);
      to = view.getBigUint64(HEADER_BYTES + 8, true);
      if (to <= from) throw violation("a cut that ends before it starts");
      break;
    default:
      throw violation(`output of channel ${payload[0] ?? 0}`);
  }
  if (from !== BigInt(offset)) throw violation(`output at ${from}, expected at ${offset}`);
  if (to > BigInt(Number.MAX_SAFE_INTEGER)) throw violation(`output up to ${to}`);
  return Number(to);
}

function decodePiece(payload: Uint8Array): OutputPiece {
  const view = new DataView(payload.buffer, payload.byteOffset, payload.byteLength);
  const at = payload[0] === channel.cut ? HEADER_BYTES : 8;
  const offset = Number(view.getBigUint64(at, true));
  if (payload[0] === channel.cut) {
    return { type: "cut", from: offset, to: Number(view.getBigUint64(at + 8, true)) };
  }
  return {
    type: "output",
    stream: payload[0] === channel.stdout ? "stdout" : "stderr",
    offset,
    bytes: payload.subarray(HEADER_BYTES),
  };
}
