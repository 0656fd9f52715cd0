/**
 * A process of the fake guest: runs its steps, one after another, while the guest runs and is not
 * frozen. Everything that must survive a sleep is in `state`, which is plain data.
 */
import type { Clock } from "../../core/ports/clock.ts";
import { FieldWriter } from "../field.ts";
import { tag } from "../operation.ts";
import { FakeLog, type FakeLogState } from "./fake-log.ts";
import type { FakeStep } from "./fake-program.ts";

export interface FakeProcessState {
  readonly process: number;
  readonly pid: number;
  readonly argv: readonly string[];
  readonly user: string;
  readonly startedMs: number;
  readonly stdin: boolean;
  readonly log: FakeLogState;
  steps: FakeStep[];
  /** Unfrozen time that is left of its timeoutMs. */
  leftMs: number | null;
  stdinEnded: boolean;
  /** Its size; null: the process has none. */
  terminal: { readonly rows: number; readonly columns: number } | null;
  exit: { exitCode: number | null; signal: number | null; timedOut: boolean } | null;
}

/** What decides whether a process may go on. */
export interface FakeCpu {
  readonly clock: Clock;
  canRun(): boolean;
  ended(process: FakeProcess): void;
}

const FILL_BYTES = 16 * 1024;
const CTRL_C = 3;
const SIGINT = 2;
const SIGKILL = 9;

export class FakeProcess {
  readonly state: FakeProcessState;
  readonly log: FakeLog;
  /** Next offsets of the readers that are attached. */
  readonly readers = new Set<{ readonly offset: number; wake(): void }>();
  /** Called when the process took everything that was sent to its stdin, and when it ends. */
  onStdinTaken: (() => void) | undefined;
  readonly #cpu: FakeCpu;
  #input: Uint8Array[] = [];
  #wake: () => void = () => undefined;

  constructor(state: FakeProcessState, cpu: FakeCpu) {
    this.state = state;
    this.log = new FakeLog(state.log);
    this.#cpu = cpu;
    setImmediate(() => void this.#run());
  }

  /** Something changed: the guest was thawed, a reader moved on, input came. */
  poke(): void {
    this.#wake();
  }

  /** A terminal shows what is typed, and makes a signal of ^C. */
  input(bytes: Uint8Array): void {
    this.#input.push(bytes.slice());
    if (this.state.terminal !== null) {
      this.#write(1, bytes);
      if (bytes.includes(CTRL_C)) this.signal(SIGINT);
    }
    this.poke();
  }

  endInput(): void {
    this.state.stdinEnded = true;
    this.poke();
  }

  signal(signal: number): void {
    if (this.state.exit === null && signal !== 0) this.#end(null, signal, false);
  }

  async #run(): Promise<void> {
    while (this.state.exit === null) {
      const step = this.state.steps[0];
      if (!this.#cpu.canRun() || this.#isHeldBack()) await this.#changed(null);
      else if (step === undefined) this.#end(0, null, false);
      else await this.#step(step);
    }
  }

  async #step(step: FakeStep): Promise<void> {
    const next = this.state.steps.slice(1);
    switch (step.kind) {
      case "write":
        this.#write(step.channel, Buffer.from(step.text));
        break;
      case "fill": {
        const bytes = Math.min(step.bytes, FILL_BYTES);
        this.#write(step.channel, Buffer.alloc(bytes));
        if (step.bytes > bytes) next.unshift({ ...step, bytes: step.bytes - bytes });
        await this.#cpu.clock.wait(0);
        break;
      }
      case "sleep": {
        const leftMs = step.ms - (await this.#changed(step.ms));
        if (leftMs > 0) next.unshift({ kind: "sleep", ms: leftMs });
        break;
      }
      case "copy":
        if (await this.#copy()) next.unshift(step);
        break;
      case "line":
        if (await this.#line()) next.unshift(step);
        break;
      case "size":
        if (this.state.terminal === null) this.#write(2, Buffer.from("stty: not a tty\n"));
        else this.#write(1, Buffer.from(sizeText(this.state.terminal)));
        break;
      case "exit":
        this.#end(step.code, null, false);
        break;
    }
    this.state.steps = next;
  }

  /** True while there may be more input. */
  async #copy(): Promise<boolean> {
    const input = this.#input.splice(0);
    for (const bytes of input) this.#write(1, bytes);
    if (input.length > 0) this.onStdinTaken?.();
    else if (!this.state.stdin || this.state.stdinEnded) return false;
    else await this.#changed(null);
    return true;
  }

  /** Takes one line; true while there is none yet and more may come. */
  async #line(): Promise<boolean> {
    const whole = Buffer.concat(this.#input.splice(0));
    const end = whole.indexOf("\n");
    if (end >= 0) {
      if (end + 1 < whole.length) this.#input.push(whole.subarray(end + 1));
      this.onStdinTaken?.();
      return false;
    }
    if (whole.length > 0) this.#input.push(whole);
    if (this.state.stdinEnded) return false;
    await this.#changed(null);
    return true;
  }

  /** A terminal has one channel, and begins its lines at the left. */
  #write(channel: 1 | 2, bytes: Uint8Array): void {
    if (this.state.terminal === null) this.log.write(channel, bytes);
    else
      this.log.write(
        1,
        Buffer.from(Buffer.from(bytes).toString("latin1").replaceAll("\n", "\r\n"), "latin1"),
      );
    for (const reader of this.readers) reader.wake();
  }

  /** A reader that is more than half the log behind stops the process. */
  #isHeldBack(): boolean {
    const behind = [...this.readers].map((reader) => this.log.end - reader.offset);
    return Math.max(0, ...behind) > this.log.limit / 2;
  }

  /** Until something changes or `ms` passed; answers the time that passed. Counts against timeoutMs. */
  async #changed(ms: number | null): Promise<number> {
    const { clock } = this.#cpu;
    const running = this.#cpu.canRun();
    const startMs = clock.monotonicMs();
    const bounds = [ms, running ? this.state.leftMs : null].filter((bound) => bound !== null);
    const controller = new AbortController();
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
      if (bounds.length === 0) return;
      clock
        .wait(Math.max(0, Math.min(...bounds)), controller.signal)
        .then(resolve, () => undefined);
    });
    controller.abort();
    const passedMs = clock.monotonicMs() - startMs;
    if (running && this.state.leftMs !== null) {
      this.state.leftMs -= passedMs;
      if (this.state.leftMs <= 0) this.#end(null, SIGKILL, true);
    }
    return passedMs;
  }

  #end(exitCode: number | null, signal: number | null, timedOut: boolean): void {
    if (this.state.exit !== null) return;
    this.state.exit = { exitCode, signal, timedOut };
    this.poke();
    for (const reader of this.readers) reader.wake();
    this.onStdinTaken?.();
    this.#cpu.ended(this);
  }
}

function sizeText({ rows, columns }: { readonly rows: number; readonly columns: number }): string {
  return `${rows} ${columns}\n`;
}

export function exitFields({ exit }: FakeProcessState): FieldWriter {
  const fields = new FieldWriter();
  if (exit === null) return fields;
  return fields
    .number(tag.exitCode, exit.exitCode ?? undefined)
    .number(tag.signal, exit.signal ?? undefined)
    .flag(tag.timedOut, exit.timedOut);
}
