/**
 * Client of QEMU's monitor protocol (QMP): JSON objects, one a line, over a unix socket. The other end
 * is not trusted.
 *
 * - I1 Every command has a deadline. After one was missed the process counts as wedged, and every further
 *   command fails at once, until it has answered all that it owes: what was asked may be carried out late.
 * - I2 A line above the limit, or one that is not a JSON object, closes the connection.
 * - I3 When the connection is closed every waiting command fails.
 */
import { connect, type Socket } from "node:net";
import { PerdureError } from "@perdure/protocol";
import type { Clock } from "../../core/ports/clock.ts";
import { HANGS_HINT, withDeadline } from "./deadline.ts";
import { qemuLimits } from "./limit.ts";

export interface QmpEvent {
  readonly name: string;
  readonly data: Readonly<Record<string, unknown>>;
}

/** Why the connection ended: `violation` is the VMM's fault, `ended` just the end of the stream. */
export interface QmpEnd {
  readonly kind: "ended" | "violation" | "closed";
  readonly detail: string;
  /** What the system said. */
  readonly cause?: Error;
}

interface Waiting {
  readonly command: string;
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: PerdureError) => void;
}

export class QmpClient {
  readonly ended: Promise<QmpEnd>;
  readonly #socket: Socket;
  readonly #clock: Clock;
  readonly #waiting = new Map<number, Waiting>();
  readonly #listeners = new Set<(event: QmpEvent) => void>();
  readonly #greeting: PromiseWithResolvers<undefined> = Promise.withResolvers();
  readonly #end: PromiseWithResolvers<QmpEnd> = Promise.withResolvers();
  #held: Buffer[] = [];
  #heldBytes = 0;
  #nextId = 1;
  #dead: PerdureError | null = null;
  /** Since a command missed its deadline; those that were not answered yet. */
  #hung: PerdureError | null = null;
  readonly #owed = new Set<number>();

  private constructor(socket: Socket, clock: Clock) {
    this.#socket = socket;
    this.#clock = clock;
    this.ended = this.#end.promise;
    this.#greeting.promise.catch(() => undefined);
    socket.on("data", (chunk: Buffer) => this.#receive(chunk));
    const ended = { kind: "ended", detail: "the VM process closed it" } as const;
    socket.on("error", (cause) => this.#finish({ ...ended, cause }));
    socket.on("close", () => this.#finish(ended));
  }

  /** Connects, waits for the greeting and leaves negotiation. @throws `machine_failed` */
  static async connect(path: string, clock: Clock, deadlineMs: number): Promise<QmpClient> {
    const socket = connect(path);
    await new Promise<void>((resolve, reject) => {
      socket.once("connect", resolve);
      socket.once("error", reject);
    }).catch((error: unknown) => {
      socket.destroy();
      const message = "Cannot connect to the monitor of the VM process: nobody is there";
      throw new PerdureError("machine_failed", message, { cause: error });
    });
    const client = new QmpClient(socket, clock);
    try {
      await withDeadline(clock, deadlineMs, "Monitor greeting", client.#greeting.promise);
      // With it QEMU reads the next commands while one is carried out, each in its turn.
      await client.execute("qmp_capabilities", { enable: ["oob"] }, deadlineMs);
      return client;
    } catch (error) {
      client.close();
      throw error;
    }
  }

  /** Called for every event until undone. */
  onEvent(listener: (event: QmpEvent) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Runs one command; what it returns is not checked here. @throws `machine_failed` */
  async execute(
    command: string,
    args: Readonly<Record<string, unknown>> = {},
    deadlineMs: number = qemuLimits.commandMs,
  ): Promise<unknown> {
    const refusal = this.#dead ?? this.#hung;
    if (refusal !== null) throw refusal;
    const id = this.#nextId++;
    const answer = new Promise<unknown>((resolve, reject) => {
      this.#waiting.set(id, { command, resolve, reject });
    });
    this.#socket.write(`${JSON.stringify({ execute: command, arguments: args, id })}\n`);
    try {
      return await withDeadline(this.#clock, deadlineMs, `Monitor command "${command}"`, answer);
    } catch (error) {
      if (this.#waiting.delete(id)) {
        this.#owed.add(id);
        this.#hung ??= new PerdureError(
          "machine_failed",
          `The VM process hangs: "${command}" was not answered within ${deadlineMs} ms`,
          { hint: HANGS_HINT },
        );
      }
      throw error;
    }
  }

  close(): void {
    this.#finish({ kind: "closed", detail: "closed by this side" });
  }

  #receive(chunk: Buffer): void {
    let rest = chunk;
    for (;;) {
      const newline = rest.indexOf(10);
      const piece = newline < 0 ? rest : rest.subarray(0, newline);
      this.#heldBytes += piece.length;
      if (this.#heldBytes > qemuLimits.monitorLineBytes) {
        this.#violation(`a line is longer than ${qemuLimits.monitorLineBytes} bytes`);
        return;
      }
      this.#held.push(piece);
      if (newline < 0) return;
      const line = Buffer.concat(this.#held).toString("utf8").trim();
      this.#held = [];
      this.#heldBytes = 0;
      if (line !== "" && !this.#line(line)) return;
      rest = rest.subarray(newline + 1);
    }
  }

  #line(line: string): boolean {
    let message: unknown;
    try {
      message = JSON.parse(line);
    } catch {
      message = null;
    }
    if (!isRecord(message)) {
      this.#violation("a line is not a JSON object");
      return false;
    }
    if ("QMP" in message) this.#greeting.resolve(undefined);
    else if (typeof message.event === "string") {
      const data = isRecord(message.data) ? message.data : {};
      for (const listener of [...this.#listeners]) listener({ name: message.event, data });
    } else this.#answer(message);
    return true;
  }

  #answer(message: Record<string, unknown>): void {
    const id = typeof message.id === "number" ? message.id : -1;
    // An answer after its deadline has nobody waiting, and says that the process lives.
    if (this.#owed.delete(id) && this.#owed.size === 0) this.#hung = null;
    const waiting = this.#waiting.get(id);
    if (waiting === undefined) return;
    this.#waiting.delete(id);
    if ("return" in message) {
      waiting.resolve(message.return);
      return;
    }
    const error = isRecord(message.error) ? message.error : {};
    const reason = typeof error.desc === "string" ? error.desc.slice(0, 500) : "unknown error";
    waiting.reject(
      new PerdureError("machine_failed", `QEMU refused "${waiting.command}": ${reason}`),
    );
  }

  #violation(detail: string): void {
    this.#finish({ kind: "violation", detail: `The monitor broke its protocol: ${detail}` });
  }

  #finish(end: QmpEnd): void {
    const { cause } = end;
    const message = `The monitor is closed: ${end.detail}`;
    const gone = new PerdureError("machine_failed", message, { cause });
    this.#dead ??= gone;
    this.#socket.destroy();
    this.#greeting.reject(gone);
    for (const waiting of this.#waiting.values()) waiting.reject(gone);
    this.#waiting.clear();
    this.#end.resolve(end);
  }
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
