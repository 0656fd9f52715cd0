/**
 * A guest for the simulation: a counter in memory and the same counter on disk (written in one step),
 * programs that exec starts, a wall clock that stands still with the CPUs, and a record of whether any
 * of the workload ran. All of it is state that memory carries.
 */
import { PerdureError, type ProcessView } from "@perdure/protocol";
import type {
  GuestActivity,
  GuestIdentity,
  GuestTimer,
} from "../../packages/daemon/src/core/ports/guest-link.ts";
import type {
  GuestModel,
  GuestSeat,
} from "../../packages/daemon/src/substrate/fake/guest-model.ts";
import type { Timeline } from "./timeline.ts";

export interface Program {
  readonly process: number;
  readonly argv: readonly string[];
  /** On the guest's monotonic clock. */
  readonly startedMs: number;
  output: string;
  exitCode: number | null;
  signal: number | null;
}

/** What a cut keeps. */
interface Memory {
  counter: number;
  /** How often the workload had the CPU outside of a freeze. */
  ticks: number;
  generation: number;
  frozen: boolean;
  bootId: string;
  hostname: string;
  machineId: string;
  reseeds: number;
  wallMs: number;
  /** Time that passed on its monotonic clock by being moved, over all its wakes. */
  advancedMs: number;
  /** Of that, what passed since the freeze and was not taken off waits yet. */
  waitsBehindMs: number;
  clockSource: string;
  nextProcess: number;
  /** The guest's monotonic clock at the cut: it stands still while the CPUs do. */
  monotonicMs: number;
  /** Of the disk, as the guest was told last, and how far the file system reaches. */
  deviceBytes: number;
  fileSystemBytes: number;
  programs: Program[];
}

export class Guest implements GuestModel {
  readonly seat: GuestSeat;
  readonly memory: Memory;
  running = false;
  gone = false;
  /** What is left of the clock's error after it was set. */
  skewMs = 0;
  /** Told of each new value of the counter. */
  onCount: (counter: number) => void = () => undefined;
  readonly #time: Timeline;
  #waiting: (() => void)[] = [];
  #wallOffsetMs = 0;
  #resumedMs = 0;

  constructor(seat: GuestSeat, saved: Uint8Array | null, time: Timeline) {
    this.seat = seat;
    this.#time = time;
    this.memory =
      saved === null ? bootMemory(seat) : (JSON.parse(Buffer.from(saved).toString()) as Memory);
  }

  /** The guest's monotonic clock. */
  get monotonicMs(): number {
    return this.memory.monotonicMs + (this.running ? this.#time.nowMs - this.#resumedMs : 0);
  }

  resume(): void {
    if (!this.running) this.#resumedMs = this.#time.nowMs;
    this.running = true;
    this.#wallOffsetMs = this.memory.wallMs - this.#time.nowMs;
    this.#wake();
  }

  halt(): void {
    this.memory.monotonicMs = this.monotonicMs;
    this.running = false;
    this.memory.wallMs = this.#time.nowMs + this.#wallOffsetMs;
  }

  save(): Uint8Array {
    return Buffer.from(JSON.stringify(this.memory));
  }

  end(): void {
    this.running = false;
    this.gone = true;
    this.#wake();
  }

  /** Resolves when the CPUs run. Never for a machine that is gone. */
  async whenRunning(): Promise<void> {
    while (!this.running) await new Promise<void>((goOn) => this.#waiting.push(goOn));
    if (!this.memory.frozen) this.memory.ticks++;
  }

  /** Guest wall clock minus the host's. */
  get wallSkewMs(): number {
    return this.#wallOffsetMs;
  }

  /** Returns how far it was moved. */
  setClock(): number {
    const movedMs = this.skewMs - this.#wallOffsetMs;
    this.#wallOffsetMs = this.skewMs;
    return movedMs;
  }

  /** The machine's clock was moved while it stood still. Only one that keeps time by it notices. */
  advance(ms: number): void {
    if (this.memory.clockSource !== "tsc") return;
    this.memory.wallMs += ms;
    this.memory.monotonicMs += ms;
    this.memory.advancedMs += ms;
    this.memory.waitsBehindMs += ms;
  }

  diskGrown(bytes: number): void {
    this.memory.deviceBytes = bytes;
  }

  shortenFrozenWaits(): number {
    if (!this.memory.frozen) throw new PerdureError("bad_request", "Nothing is frozen");
    this.memory.waitsBehindMs = 0;
    return 0;
  }

  setIdentity(identity: GuestIdentity): void {
    const { hostname, machineId, bootId } = identity;
    Object.assign(this.memory, { hostname, machineId, bootId });
  }

  /** Starts a program; the short ones have ended when this returns. @throws `exec_failed` */
  exec(argv: readonly string[]): Program {
    const program: Program = {
      process: this.memory.nextProcess++,
      argv: [...argv],
      startedMs: this.monotonicMs,
      output: "",
      exitCode: null,
      signal: null,
    };
    this.#perform(program);
    this.memory.programs.push(program);
    this.#wake();
    return program;
  }

  program(process: number): Program {
    const found = this.memory.programs.find((program) => program.process === process);
    if (found !== undefined) return found;
    throw new PerdureError("process_not_found", `The guest knows no process ${process}`);
  }

  kill(process: number, signal: number): void {
    const program = this.program(process);
    if (program.exitCode === null) program.signal ??= signal;
    this.#wake();
  }

  /** @throws `port_refused` where no program serves the port */
  assertListening(port: number): void {
    const isServed = this.memory.programs.some(
      ({ argv: [name, number], exitCode, signal }) =>
        name === "serve" && Number(number) === port && exitCode === null && signal === null,
    );
    if (!isServed) throw new PerdureError("port_refused", `Nobody listens on port ${port}`);
  }

  forget(process: number): void {
    this.program(process);
    const { programs } = this.memory;
    this.memory.programs = programs.filter((program) => program.process !== process);
  }

  /** A busy program uses a whole CPU for as long as the workload runs. */
  get activity(): GuestActivity {
    const { programs, counter } = this.memory;
    const isBusy = programs.some(
      (program) => program.argv[0] === "spin" && program.exitCode === null,
    );
    const cpuUsec = isBusy ? Math.round(this.monotonicMs * 1000) : counter;
    return { cpuUsec, diskWriteBytes: counter, execs: programs.length, fileWrites: 0, attached: 0 };
  }

  /** Of programs that wait for a time. */
  get timers(): readonly GuestTimer[] {
    return this.memory.programs.flatMap(
      ({ argv: [name = "", forMs = ""], process, startedMs, exitCode }) =>
        name !== "wait-for" || exitCode !== null
          ? []
          : [
              {
                pid: 100 + process,
                name,
                dueInMs: Math.max(0, startedMs + Number(forMs) - this.monotonicMs),
              },
            ],
    );
  }

  /** Resolves at the next thing that happens inside. */
  change(): Promise<void> {
    return new Promise((goOn) => this.#waiting.push(goOn));
  }

  #wake(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const goOn of waiting) goOn();
  }

  #perform(program: Program): void {
    const [name = "", one = "", two = ""] = program.argv;
    const finish = (output: string, exitCode = 0): void => {
      program.output = output;
      program.exitCode = exitCode;
    };
    switch (name) {
      case "count":
        this.memory.counter += Number(one);
        this.seat.disk?.write("counter", String(this.memory.counter));
        this.onCount(this.memory.counter);
        finish(String(this.memory.counter));
        return;
      case "write":
        this.seat.disk?.write(one, two);
        finish("");
        return;
      case "read": {
        const value = this.seat.disk?.read(one) ?? null;
        finish(value ?? "", value === null ? 1 : 0);
        return;
      }
      case "resize2fs": {
        const bytes = Number.parseInt(two) * 1024;
        const fits = bytes <= this.memory.deviceBytes;
        if (fits) this.memory.fileSystemBytes = bytes;
        finish(fits ? "" : "The device is too small", fits ? 0 : 1);
        return;
      }
      case "echo":
        finish(one);
        return;
      case "wait":
      case "wait-for":
      case "spin":
      case "serve":
        return;
      default:
        throw new PerdureError("exec_failed", `${name}: ENOENT`);
    }
  }
}

export function processView(program: Program): ProcessView {
  const { process, argv, exitCode, signal, output } = program;
  const running = exitCode === null && signal === null;
  return {
    process,
    pid: 100 + process,
    argv: [...argv],
    user: "user",
    startedAtMs: 0,
    running,
    exit: running ? null : { exitCode, signal, timedOut: false },
    logStart: 0,
    logEnd: output.length,
  };
}

function bootMemory(seat: GuestSeat): Memory {
  return {
    counter: Number(seat.disk?.read("counter") ?? 0),
    ticks: 0,
    generation: 0,
    frozen: false,
    bootId: `boot of ${seat.machine}`,
    hostname: "image",
    machineId: "image",
    reseeds: 0,
    wallMs: 0,
    advancedMs: 0,
    waitsBehindMs: 0,
    clockSource: "tsc",
    nextProcess: 1,
    monotonicMs: 0,
    deviceBytes: seat.diskBytes,
    fileSystemBytes: seat.diskBytes,
    programs: [],
  };
}
