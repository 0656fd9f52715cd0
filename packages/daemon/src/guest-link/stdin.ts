/**
 * Standard input of processes. One stream per process is kept open between writes, so that they stay
 * in order without waiting for each other's answers; only so many, because the guest has few.
 */
import { PerdureError } from "@perdure/protocol";
import type { Clock } from "../core/ports/clock.ts";
import { timeoutError } from "./call.ts";
import { startDeadline, USER_DEADLINE_MS } from "./deadline.ts";
import type { Epoch } from "./epoch.ts";
import { FieldWriter } from "./field.ts";
import { operation, tag } from "./operation.ts";
import { Sender } from "./sender.ts";

/** Streams kept for processes that nobody writes to at the moment. */
export const IDLE_INPUTS_MAX = 32;

interface Input {
  readonly sender: Sender;
  writers: number;
  /** Writes go one after another. */
  last: Promise<unknown>;
}

export class StdinStreams {
  readonly #clock: Clock;
  readonly #inputs = new Map<number, Input>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  async write(epoch: Epoch, process: number, bytes: Uint8Array, end: boolean): Promise<void> {
    const input = this.#inputs.get(process) ?? this.#open(epoch, process);
    input.writers++;
    const turn = input.last.then(async () => {
      await input.sender.answer();
      await input.sender.send(bytes);
      if (!end) return;
      if (input.sender.failure !== undefined) throw input.sender.failure;
      input.sender.end();
      input.sender.abandon();
      this.#forget(process, input);
    });
    input.last = turn
      .catch(() => this.#forget(process, input))
      .finally(() => {
        input.writers--;
        this.#closeIdle();
      });
    return turn;
  }

  #open(epoch: Epoch, process: number): Input {
    const action = `write to process ${process}`;
    const sender = new Sender(epoch, action, () => {
      if (this.#inputs.get(process)?.sender === sender) this.#inputs.delete(process);
    });
    const fields = new FieldWriter().number(tag.process, process).finish();
    const options = { control: false, action };
    sender.start(epoch.open(operation.stdin, fields, options, sender.events));
    const stop = startDeadline(this.#clock, USER_DEADLINE_MS, () =>
      sender.fail(timeoutError(action, USER_DEADLINE_MS)),
    );
    const input: Input = {
      sender,
      writers: 0,
      last: sender
        .answer()
        .catch(() => undefined)
        .finally(stop),
    };
    this.#inputs.set(process, input);
    return input;
  }

  /** What the guest has taken it writes to the process even when the stream is gone. */
  #closeIdle(): void {
    const idle = [...this.#inputs].filter(([, input]) => input.writers === 0);
    for (const [process, input] of idle.slice(0, -IDLE_INPUTS_MAX)) this.#forget(process, input);
  }

  /** Whoever comes next opens another stream, and the guest says what it thinks of that. */
  #forget(process: number, input: Input): void {
    input.sender.fail(
      new PerdureError("stdin_closed", `Cannot write to process ${process}: its input was ended`),
    );
  }
}
