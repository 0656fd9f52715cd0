/**
 * One connection to a guest: deadlines, faults, the end of the link, and a watch over what may be asked
 * of a guest when (I4): nothing of users before the let-out is recorded, no thaw before it either.
 */
import { PerdureError, type ErrorCode } from "@perdure/protocol";
import type { OutputPiece } from "../../packages/daemon/src/core/ports/guest-link.ts";
import type { FakeHost } from "../../packages/daemon/src/substrate/fake/fake-host.ts";
import type { FakeProcess } from "../../packages/daemon/src/substrate/fake/fake-process.ts";
import type { Faults } from "../../packages/daemon/src/substrate/fake/fault.ts";
import type { Life } from "../../packages/daemon/src/substrate/fake/life.ts";
import { Guest } from "./guest.ts";
import type { Timeline } from "./timeline.ts";

export interface LinkWorld {
  readonly host: FakeHost;
  readonly faults: Faults;
  readonly time: Timeline;
  readonly life: Life;
  /** Whether the state store knows that the agent on this machine was let out; null: no agent. */
  readonly isLetOut: (machine: string) => boolean | null;
  /** Guest agents of before, that have none. */
  readonly lacksWayOut: () => boolean;
  /** Every connection of this life. */
  readonly wires: Set<GuestWire>;
}

const USER_DEADLINE_MS = 30_000;
/** |skew| above which no user's work may run. */
const SKEW_MS_MAX = 500;

export class GuestWire {
  readonly closed: Promise<string>;
  synced = false;
  readonly #process: FakeProcess;
  readonly #world: LinkWorld;
  #letOut = false;
  /** Whether the guest was asked for its way out. */
  #wayOutAsked = false;
  #closedBy: string | null = null;
  #close: (reason: string) => void = () => undefined;

  constructor(process: FakeProcess, world: LinkWorld) {
    this.#process = process;
    this.#world = world;
    this.closed = new Promise((resolve) => (this.#close = resolve));
    process.listeners.add(({ kind, detail }) => {
      if (kind === "exited" && !world.life.over) this.close(detail);
    });
  }

  async openWayOut(): Promise<void> {
    this.#wayOutAsked = true;
    if (this.#world.lacksWayOut()) throw new PerdureError("not_supported", "There is no way out");
    await this.control("openWayOut", 5000, () => undefined);
  }

  letOut(): void {
    this.#letOut = true;
  }

  close(reason: string): void {
    this.#closedBy ??= reason;
    this.#close(reason);
  }

  thaw({ memory, seat }: Guest): void {
    const { host, isLetOut } = this.#world;
    if (memory.frozen && isLetOut(seat.machine) === false) {
      host.violate(`I4: ${seat.machine} was thawed before its let-out was recorded`);
    }
    if (memory.frozen && isLetOut(seat.machine) !== null && !this.#wayOutAsked) {
      host.violate(`I4: ${seat.machine} was thawed before it was asked for its way out`);
    }
    memory.frozen = false;
  }

  control<T>(
    operation: string,
    deadlineMs: number,
    work: (guest: Guest) => T,
    late: ErrorCode = "guest_timeout",
  ): Promise<T> {
    return this.#call(operation, deadlineMs, late, (guest) => {
      if (!this.synced && operation !== "sync") {
        throw new PerdureError("guest_protocol_violation", `"${operation}" came before sync`);
      }
      return work(guest);
    });
  }

  user<T>(operation: string, work: (guest: Guest) => T): Promise<T> {
    const { host, isLetOut } = this.#world;
    if (!this.#letOut) {
      return Promise.reject(new PerdureError("agent_state", "The agent was not let out yet"));
    }
    return this.#call(operation, USER_DEADLINE_MS, "guest_timeout", (guest) => {
      const { memory, seat, wallSkewMs } = guest;
      const complain = (what: string): void => host.violate(`I4: ${operation} ${what}`);
      if (isLetOut(seat.machine) === false) complain("came before the let-out was recorded");
      if (memory.frozen) complain("came while the workload was frozen");
      if (Math.abs(wallSkewMs) > SKEW_MS_MAX) complain(`met a clock ${wallSkewMs} ms off`);
      return work(guest);
    });
  }

  async *attach(process: number, offset: number): AsyncIterable<OutputPiece> {
    let next = offset;
    for (;;) {
      const program = await this.user("attach", (guest) => ({
        ...guest.program(process),
        change: guest.change(),
      }));
      if (program.output.length > next) {
        const bytes = Buffer.from(program.output.slice(next));
        yield { type: "output", stream: "stdout", offset: next, bytes };
        next = program.output.length;
      }
      const { exitCode, signal } = program;
      if (exitCode !== null || signal !== null) {
        yield { type: "exit", exitCode, signal, timedOut: false };
        return;
      }
      const end = await Promise.race([this.closed, program.change.then(() => null)]);
      await this.#world.life.pass();
      if (end !== null) throw new PerdureError("interrupted", end);
    }
  }

  async #call<T>(
    operation: string,
    deadlineMs: number,
    late: ErrorCode,
    work: (guest: Guest) => T,
  ): Promise<T> {
    const { life, faults, time } = this.#world;
    await life.pass();
    if (this.#closedBy !== null) throw unreachable(this.#closedBy);
    const done = new AbortController();
    const deadline = time.wait(deadlineMs, done.signal).then(
      () => {
        throw new PerdureError(late, `No answer to "${operation}" within ${deadlineMs} ms`);
      },
      () => new Promise<never>(() => undefined),
    );
    const end = this.closed.then((reason) => {
      throw unreachable(reason);
    });
    const answer = async (): Promise<T> => {
      await faults.point(`link.${operation}`);
      const guest = await this.#process.loaded;
      if (!(guest instanceof Guest)) throw unreachable("another kind of guest runs there");
      await guest.whenRunning();
      // What the deadline or a closed link gave up must not take effect later.
      if (done.signal.aborted || this.#closedBy !== null) return new Promise<T>(() => undefined);
      return work(guest);
    };
    try {
      return await Promise.race([answer(), deadline, end]);
    } finally {
      done.abort();
      await life.pass();
    }
  }
}

function unreachable(reason: string): PerdureError {
  return new PerdureError("guest_unreachable", `The link is closed: ${reason}`);
}
