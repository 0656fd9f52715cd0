/**
 * A guest in memory that speaks the real wire protocol: for tests of whatever uses a guest link.
 *
 * Its state is plain data. `save` is its whole memory; `FakeGuest.load` goes on from there, with its
 * wall clock where it stood, as a VM that was restored. `faults` makes it misbehave.
 */
import type { Duplex } from "node:stream";
import type { Clock } from "../../core/ports/clock.ts";
import { FieldWriter, type Fields } from "../field.ts";
import { hostClock } from "../host-clock.ts";
import { eventKind, PROTOCOL_VERSION, status, tag, type Operation } from "../operation.ts";
import { operationVersion } from "../version.ts";
import { FakeFailure, FakeFiles, initialFiles } from "./fake-file.ts";
import { fakeOperations } from "./fake-operation.ts";
import { FakeWayOut } from "./fake-way-out.ts";
import { FakePort, type FakeStream } from "./fake-port.ts";
import { exitFields, FakeProcess, type FakeProcessState } from "./fake-process.ts";
import type { FakeGuestState, FakeInside, FakeListener } from "./fake-state.ts";

/** What the guest does wrong. All of it can be changed at any time. */
export interface FakeFaults {
  /** Never answers RESYNC. */
  deaf?: boolean;
  /** Bytes of left-overs sent before SYNCED. */
  leftOverBytes?: number;
  /** Operations that are never answered. */
  silent?: readonly Operation[];
  /** Operations that fail with this status; `deadlineExceeded` makes a freeze that does not end. */
  failing?: ReadonlyMap<Operation, number>;
}

export interface FakeGuestOptions {
  readonly clock?: Clock;
  readonly skewMs?: number;
  /** Version of the protocol that it speaks. Default: the newest. */
  readonly version?: number;
}

export class FakeGuest implements FakeInside {
  readonly state: FakeGuestState;
  readonly clock: Clock;
  readonly files: FakeFiles;
  readonly processes = new Map<number, FakeProcess>();
  readonly listeners = new Map<number, FakeListener>();
  readonly wayOut = new FakeWayOut();
  readonly faults: FakeFaults = {};
  readonly #version: number;
  /** Called when the guest has powered itself off. */
  onPowerOff: () => void = () => undefined;
  #port: FakePort | undefined;
  #running = true;

  constructor(options: FakeGuestOptions = {}, state?: FakeGuestState) {
    this.clock = options.clock ?? hostClock;
    this.state = state ?? initialState(this.clock, options.skewMs ?? 0);
    this.files = new FakeFiles(this.state.files);
    this.#version = options.version ?? PROTOCOL_VERSION;
    for (const process of this.state.processes) this.#start(process);
  }

  /** The guest's memory, with its wall clock as it stands. The guest should be paused. */
  save(): string {
    return JSON.stringify({ nowMs: this.nowMs(), state: this.state });
  }

  static load(saved: string, options: Pick<FakeGuestOptions, "clock" | "version"> = {}): FakeGuest {
    const { nowMs, state } = JSON.parse(saved) as { nowMs: number; state: FakeGuestState };
    state.skewMs = nowMs - (options.clock ?? hostClock).nowMs();
    return new FakeGuest(options, state);
  }

  /** Serves this end of the port from now on, until the next one. */
  serve(socket: Duplex): void {
    this.#port?.close();
    this.#port = new FakePort(socket, {
      version: this.#version,
      resynced: () =>
        this.faults.deaf === true
          ? null
          : new Uint8Array(this.faults.leftOverBytes ?? 0).fill(0x89),
      request: (stream, op, fields) => this.#request(stream, op, fields),
    });
    if (!this.#running) this.#port.pause();
  }

  /** Stops the CPUs. */
  pause(): void {
    this.#running = false;
    this.#port?.pause();
  }

  run(): void {
    this.#running = true;
    this.#port?.resume();
    this.poke();
  }

  /** Ends the guest as if its VM were killed. */
  kill(): void {
    this.#running = false;
    this.#port?.close();
    for (const process of this.processes.values()) process.signal(9);
  }

  powerOff(): void {
    this.kill();
    this.onPowerOff();
  }

  nowMs(): number {
    return this.clock.nowMs() + this.state.skewMs;
  }

  poke(): void {
    for (const process of this.processes.values()) process.poke();
  }

  add(state: FakeProcessState): FakeProcess {
    this.state.processes.push(state);
    return this.#start(state);
  }

  forget(process: FakeProcess): void {
    this.processes.delete(process.state.process);
    this.state.processes = this.state.processes.filter((state) => state !== process.state);
  }

  /** Bytes past all rules, for tests of the host end. */
  sendRaw(bytes: Uint8Array): void {
    this.#port?.write(bytes);
  }

  #start(state: FakeProcessState): FakeProcess {
    const process = new FakeProcess(state, {
      clock: this.clock,
      canRun: () => this.#running && !this.state.frozen,
      ended: (ended) => this.#ended(ended),
    });
    this.processes.set(state.process, process);
    return process;
  }

  #ended({ state }: FakeProcess): void {
    const fields = new FieldWriter().number(tag.process, state.process);
    this.#port?.event(eventKind.processEnded, fields.add(exitFields(state)));
  }

  #request(stream: FakeStream, op: number, fields: Fields): void {
    if (this.faults.silent?.includes(op as Operation) === true) return;
    const failing = this.faults.failing?.get(op as Operation);
    if (failing !== undefined) {
      stream.fail(failing, "The test wants it so");
      return;
    }
    try {
      const run = fakeOperations.get(op);
      if (run === undefined || operationVersion(op) > this.#version)
        throw new FakeFailure(status.unknownOperation, `Operation ${op}?`);
      run(this, stream, fields);
    } catch (error) {
      if (error instanceof FakeFailure) stream.fail(error.status, error.message);
      else stream.fail(status.badRequest, error instanceof Error ? error.message : String(error));
    }
  }
}

function initialState(clock: Clock, skewMs: number): FakeGuestState {
  return {
    bootId: Buffer.from(clock.randomBytes(16)).toString("hex"),
    hostname: "perdure",
    machineId: "0".repeat(32),
    generation: 0,
    generationJson: "",
    frozen: false,
    clockSource: "tsc",
    skewMs,
    entropyAdded: 0,
    cachedBytes: 2 ** 24,
    nextProcess: 1,
    fileWrites: 0,
    files: initialFiles(clock.nowMs() + skewMs),
    processes: [],
  };
}
