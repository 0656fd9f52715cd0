/**
 * One WebSocket that is a connection to a port inside: binary messages are its bytes, both ways.
 *
 * Bounds, whatever a client or a program does: of the program's bytes at most a window is on its way, and one piece
 * is asked of the guest only when the one before has left; of the client's at most a window is held. Who gives no
 * sign of life from one ping to the next is cut. A client that goes breaks the connection off, so that no program
 * takes half of something for the whole.
 */
import { connectRequestSchema, PerdureError, portLimits } from "@perdure/protocol";
import type { ConnectEvent, ConnectRequest } from "@perdure/protocol";
import type { RawData, WebSocket } from "ws";
import type { AgentConnection, Commands } from "../core/command.ts";

const SAID_BYTES_MAX = 262_144;
const TEXT_BYTES_MAX = 1_024;
/** How long a client may take to answer a close, milliseconds. */
const CLOSE_MS = 1_000;
const OK = 1000;
const POLICY = 1008;
const FAILED = 1011;

export interface PortSocketOptions {
  readonly connect: () => ReturnType<Commands["connect"]>;
  /** Aborts when the daemon begins to close. */
  readonly closing: AbortSignal;
  readonly pingMs: number;
}

/** Serves `socket` until it is closed. Does not reject. */
export async function servePort(socket: WebSocket, options: PortSocketOptions): Promise<void> {
  const port = new PortSocket(socket, options);
  let connection: AgentConnection | undefined;
  try {
    connection = await options.connect();
    port.say({ type: "connected", generation: connection.generation });
    await Promise.race([port.gone, Promise.all([port.pump(connection), port.feed(connection)])]);
    port.leave(OK);
  } catch (error) {
    port.fail(PerdureError.from(error), FAILED);
  } finally {
    connection?.close();
  }
}

class PortSocket {
  /** Resolves when the client has gone, or nothing is said to it any more. */
  readonly gone: Promise<undefined>;
  readonly #socket: WebSocket;
  readonly #leaving = Promise.withResolvers<undefined>();
  #over = false;
  #isThere = true;
  #credit: number = portLimits.windowBytes;
  #input: Uint8Array[] = [];
  #inputBytes = 0;
  #inputEnded = false;
  #changed = Promise.withResolvers<undefined>();

  constructor(socket: WebSocket, { closing, pingMs }: PortSocketOptions) {
    this.#socket = socket;
    this.gone = this.#leaving.promise;
    socket.binaryType = "nodebuffer";
    socket.on("message", (data, isBinary) => this.#receive(data, isBinary));
    // A frame that is no frame, or too large: ws closes.
    socket.on("error", () => undefined);
    const pinging = setInterval(() => {
      if (!this.#isThere) socket.terminate();
      this.#isThere = false;
      socket.ping();
    }, pingMs);
    socket.on("pong", () => (this.#isThere = true));
    const stop = (): void => {
      this.fail(new PerdureError("interrupted", "The daemon stops"), OK);
    };
    closing.addEventListener("abort", stop);
    socket.once("close", () => {
      clearInterval(pinging);
      closing.removeEventListener("abort", stop);
      this.#end();
    });
    if (closing.aborted) stop();
  }

  /** Of the program, to its end. */
  async pump(connection: AgentConnection): Promise<void> {
    for (;;) {
      const piece = await connection.read();
      if (piece === null) break;
      for (let at = 0; at < piece.length && !this.#over;) {
        if (this.#credit === 0) {
          await this.#changed.promise;
          continue;
        }
        const part = piece.subarray(at, at + this.#credit);
        this.#credit -= part.length;
        at += part.length;
        await new Promise<void>((sent) => {
          this.#socket.send(part, (error) => {
            if (error != null) this.#end();
            sent();
          });
        });
        this.#isThere = true;
      }
    }
    this.say({ type: "end" });
  }

  /** Of the client, to its end. */
  async feed(connection: AgentConnection): Promise<void> {
    while (!this.#over) {
      const bytes = this.#input.shift();
      if (bytes !== undefined) {
        await connection.write(bytes);
        this.#inputBytes -= bytes.length;
        this.say({ type: "credit", bytes: bytes.length });
      } else if (this.#inputEnded) {
        connection.end();
        return;
      } else {
        await this.#changed.promise;
      }
    }
  }

  say(event: ConnectEvent): void {
    if (this.#over) return;
    this.#socket.send(JSON.stringify(event));
    if (this.#socket.bufferedAmount > SAID_BYTES_MAX + portLimits.windowBytes) {
      this.#socket.terminate();
    }
  }

  fail(error: PerdureError, code: number): void {
    this.say({ type: "error", error: error.toJSON() });
    this.leave(code);
  }

  leave(code: number): void {
    if (this.#over) return;
    this.#end();
    this.#socket.close(code);
    const cut = setTimeout(() => this.#socket.terminate(), CLOSE_MS);
    this.#socket.once("close", () => clearTimeout(cut));
  }

  #receive(data: RawData, isBinary: boolean): void {
    this.#isThere = true;
    if (this.#over) return;
    const bytes = data as Buffer;
    if (!isBinary) {
      const request = parse(bytes);
      if (request instanceof PerdureError) this.fail(request, POLICY);
      else this.#take(request);
      return;
    }
    if (bytes.length === 0) return;
    this.#inputBytes += bytes.length;
    if (this.#inputEnded || this.#inputBytes > portLimits.windowBytes) {
      const why = this.#inputEnded
        ? "they come after the end"
        : `more than ${portLimits.windowBytes} were not taken yet`;
      const hint = 'Wait for "credit" before more is sent.';
      this.fail(new PerdureError("too_large", `Cannot take the bytes: ${why}`, { hint }), POLICY);
      return;
    }
    this.#input.push(bytes);
    this.#notify();
  }

  #take(request: ConnectRequest): void {
    if (request.type === "end") this.#inputEnded = true;
    else this.#credit = Math.min(this.#credit + request.bytes, portLimits.windowBytes);
    this.#notify();
  }

  #end(): void {
    this.#over = true;
    this.#leaving.resolve(undefined);
    this.#notify();
  }

  #notify(): void {
    this.#changed.resolve(undefined);
    this.#changed = Promise.withResolvers();
  }
}

function parse(bytes: Buffer): ConnectRequest | PerdureError {
  const refuse = (why: string): PerdureError =>
    new PerdureError("bad_request", `Cannot read the message: ${why}`);
  if (bytes.length > TEXT_BYTES_MAX) return refuse(`it has more than ${TEXT_BYTES_MAX} bytes`);
  let value: unknown;
  try {
    value = JSON.parse(bytes.toString());
  } catch {
    return refuse("it is not JSON");
  }
  const result = connectRequestSchema.safeParse(value);
  if (result.success) return result.data;
  const issue = result.error.issues[0];
  return refuse(`"${(issue?.path ?? []).join(".")}" ${issue?.message ?? "does not fit"}`);
}
