/**
 * One WebSocket that is attached to a process: output to the client, input, signals and sizes from it.
 *
 * Bounds, whatever a client does: of output one piece is held, asked of the guest only when the one before has
 * left; of input at most its window; of requests at most `requestsMax`; of what is said besides at most
 * `SAID_BYTES_MAX`. Who gives no sign of life from one ping to the next is cut. A client that goes, however it goes, ends nothing
 * inside, unless it asked for that (`hangsUp`).
 *
 * Input and requests have a queue each, so that a signal does not wait behind input that nobody reads.
 */
import { attachLimits, attachRequestSchema, encodeOutput, PerdureError } from "@perdure/protocol";
import type { AttachEvent } from "@perdure/protocol";
import type { z } from "zod";
import type { RawData, WebSocket } from "ws";
import type { Commands, ProcessOutput, ProcessTarget } from "../core/command.ts";

/** Said to a client that does not read, before it is cut. */
const SAID_BYTES_MAX = 262_144;
/** How long a client may take to answer a close, milliseconds. */
const CLOSE_MS = 1_000;
const SIGHUP = 1;
const OK = 1000;
const POLICY = 1008;
const FAILED = 1011;

export interface AttachOptions {
  readonly commands: Commands;
  readonly target: ProcessTarget & { readonly wakes: boolean };
  readonly offset: number;
  /** Bytes of output that may be on their way; undefined: as many as the connection takes. */
  readonly window?: number | undefined;
  /** Whether the program gets SIGHUP where the client goes before it has ended. */
  readonly hangsUp?: boolean;
  /** Aborts when the daemon begins to close. */
  readonly closing: AbortSignal;
  readonly pingMs: number;
}

/** Serves `socket` until it is closed. Does not reject. */
export async function serveAttachment(socket: WebSocket, options: AttachOptions): Promise<void> {
  const attachment = new Attachment(socket, options);
  try {
    await attachment.pump();
  } catch (error) {
    attachment.fail(PerdureError.from(error), FAILED);
  }
}

class Attachment {
  readonly #socket: WebSocket;
  readonly #options: AttachOptions;
  /** Aborts when the client has gone. */
  readonly #gone = new AbortController();
  /** Nothing is said after the last word. */
  #over = false;
  /** Whether the client was there for the last word. */
  #told = false;
  /** Whether there was a sign of the client since the last ping. */
  #isThere = true;
  #offset: number;
  #credit: number;
  #credited: () => void = () => undefined;
  #input: Uint8Array[] = [];
  /** Sent and not taken yet. */
  #inputBytes = 0;
  #inputEnds = false;
  #inputClosed = false;
  #feeding = false;
  #requests = 0;
  #lastRequest: Promise<void> = Promise.resolve();

  constructor(socket: WebSocket, options: AttachOptions) {
    this.#socket = socket;
    this.#options = options;
    this.#offset = options.offset;
    this.#credit = options.window ?? Infinity;
    socket.binaryType = "nodebuffer";
    socket.on("message", (data, isBinary) => {
      this.#receive(data, isBinary);
    });
    // A frame that is no frame, or too large: ws closes.
    socket.on("error", () => undefined);
    this.#watchOver(options.pingMs);
    const leave = (): void => {
      this.#sayLast({ type: "interrupted", reason: "daemon", offset: this.#offset }, OK);
    };
    options.closing.addEventListener("abort", leave, { signal: this.#gone.signal });
    if (options.closing.aborted) leave();
  }

  /** Output until the last word. */
  async pump(): Promise<void> {
    const { commands, target } = this.#options;
    const pieces = await commands.output(target, this.#offset, this.#gone.signal);
    this.#say({ type: "attached", process: target.process, offset: this.#offset });
    for await (const piece of pieces) {
      await this.#pass(piece);
      if (piece.type === "exit" || piece.type === "interrupted") return;
    }
    if (this.#gone.signal.aborted) return;
    throw new PerdureError("internal", "The output ended without an exit");
  }

  fail(error: PerdureError, code: number): void {
    this.#sayLast({ type: "error", error: error.toJSON() }, code);
  }

  async #pass(piece: ProcessOutput): Promise<void> {
    switch (piece.type) {
      case "output":
        await this.#send(piece);
        return;
      case "cut":
        this.#offset = piece.to;
        this.#say(piece);
        return;
      case "exit": {
        const { exitCode, signal, timedOut } = piece;
        this.#sayLast({ type: "exit", exitCode, signal, timedOut }, OK);
        return;
      }
      case "interrupted":
        this.#sayLast(piece, OK);
    }
  }

  /** Resolves when all of it has left for the kernel, or the client has gone. */
  async #send({ stream, offset, bytes }: ProcessOutput & { type: "output" }): Promise<void> {
    for (let at = 0; at < bytes.length && !this.#gone.signal.aborted;) {
      if (this.#credit < 1) {
        await new Promise<void>((credited) => (this.#credited = credited));
        continue;
      }
      const part = bytes.subarray(at, at + this.#credit);
      this.#credit -= part.length;
      const message = encodeOutput({ stream, offset: offset + at, bytes: part });
      at += part.length;
      this.#offset = offset + at;
      await new Promise<void>((sent) => {
        this.#socket.send(message, (error) => {
          if (error != null) this.#leave();
          sent();
        });
      });
      this.#isThere = true;
    }
  }

  #receive(data: RawData, isBinary: boolean): void {
    this.#isThere = true;
    if (this.#over) return;
    const bytes = data as Buffer;
    if (isBinary) {
      this.#inputBytes += bytes.length;
      if (this.#inputBytes > attachLimits.inputWindowBytes) {
        const message = `Cannot take the input: more than ${attachLimits.inputWindowBytes} bytes of it were not taken yet`;
        const hint = 'Wait for "credit" before more is sent.';
        this.fail(new PerdureError("too_large", message, { hint }), POLICY);
        return;
      }
      this.#input.push(bytes);
      this.#feed();
      return;
    }
    const request = parse(bytes);
    if (request instanceof PerdureError) this.fail(request, POLICY);
    else this.#take(request);
  }

  #take(request: z.output<typeof attachRequestSchema>): void {
    switch (request.type) {
      case "credit": {
        const { window } = this.#options;
        this.#credit = Math.min(this.#credit + request.bytes, window ?? Infinity);
        this.#credited();
        return;
      }
      case "end":
        this.#inputEnds = true;
        this.#feed();
        return;
      case "resize":
      case "signal":
        this.#carryOut(request);
    }
  }

  /** Input in order, what came together in one piece. */
  #feed(): void {
    if (this.#feeding) return;
    this.#feeding = true;
    void this.#feedAll().finally(() => (this.#feeding = false));
  }

  async #feedAll(): Promise<void> {
    const { commands, target } = this.#options;
    while (!this.#over && (this.#input.length > 0 || this.#inputEnds)) {
      const bytes = Buffer.concat(this.#input);
      const ends = this.#inputEnds;
      this.#input = [];
      this.#inputEnds = false;
      try {
        if (!this.#inputClosed) await commands.writeStdin(target, bytes, ends, this.#gone.signal);
      } catch (error) {
        this.#inputClosed = true;
        this.#say({ type: "input-closed", error: PerdureError.from(error).toJSON() });
      }
      this.#inputBytes -= bytes.length;
      if (bytes.length > 0) this.#say({ type: "credit", bytes: bytes.length });
    }
  }

  /** One after another, in the order they came. */
  #carryOut(request: z.output<typeof attachRequestSchema> & { type: "resize" | "signal" }): void {
    if (++this.#requests > attachLimits.requestsMax) {
      const message = `Cannot take the request: ${attachLimits.requestsMax} are not done yet`;
      const hint = 'Give requests an "id", and wait until they are done.';
      this.fail(new PerdureError("too_many", message, { hint }), POLICY);
      return;
    }
    const { commands, target } = this.#options;
    const { id, ...rest } = request;
    const { type, ...fields } = rest;
    this.#lastRequest = this.#lastRequest.then(async () => {
      try {
        if (this.#over) return;
        // Of a union of kinds, each with its own fields.
        await commands.execute({ ...target, ...fields, kind: type } as Parameters<
          Commands["execute"]
        >[0]);
        if (id !== undefined) this.#say({ type: "done", id });
      } catch (error) {
        if (id === undefined) return;
        this.#say({ type: "refused", id, error: PerdureError.from(error).toJSON() });
      } finally {
        this.#requests--;
      }
    });
  }

  #say(event: AttachEvent): void {
    if (this.#over) return;
    this.#socket.send(JSON.stringify(event));
    if (this.#socket.bufferedAmount > SAID_BYTES_MAX) this.#socket.terminate();
  }

  #sayLast(event: AttachEvent, code: number): void {
    if (this.#over) return;
    this.#told = true;
    this.#say(event);
    this.#leave();
    this.#socket.close(code);
    const cut = setTimeout(() => this.#socket.terminate(), CLOSE_MS);
    this.#socket.once("close", () => clearTimeout(cut));
  }

  /** Pings, and takes note of the end. */
  #watchOver(pingMs: number): void {
    const pinging = setInterval(() => {
      if (!this.#isThere) this.#socket.terminate();
      this.#isThere = false;
      this.#socket.ping();
    }, pingMs);
    this.#socket.on("pong", () => (this.#isThere = true));
    this.#socket.once("close", () => {
      clearInterval(pinging);
      if (!this.#told) this.#hangUp();
      this.#leave();
    });
  }

  /** Behind what it asked for before. Of a program that has ended meanwhile there is nothing to end. */
  #hangUp(): void {
    const { commands, target, hangsUp = false } = this.#options;
    if (!hangsUp) return;
    const { tenant, agent, process } = target;
    const signal = { kind: "signal", tenant, agent, process, signal: SIGHUP, tree: true } as const;
    void this.#lastRequest.then(() => commands.execute(signal)).catch(() => undefined);
  }

  /** Nobody is there, or there is nothing more to say. */
  #leave(): void {
    this.#over = true;
    this.#gone.abort();
    this.#credited();
  }
}

function parse(bytes: Buffer): z.output<typeof attachRequestSchema> | PerdureError {
  const refuse = (why: string): PerdureError =>
    new PerdureError("bad_request", `Cannot read the message: ${why}`);
  if (bytes.length > attachLimits.textBytesMax) {
    return refuse(`it has more than ${attachLimits.textBytesMax} bytes`);
  }
  let value: unknown;
  try {
    value = JSON.parse(bytes.toString());
  } catch {
    return refuse("it is not JSON");
  }
  const result = attachRequestSchema.safeParse(value);
  if (result.success) return result.data;
  const issue = result.error.issues[0];
  return refuse(`"${(issue?.path ?? []).join(".")}" ${issue?.message ?? "does not fit"}`);
}
