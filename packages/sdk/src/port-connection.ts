/** A connection to a TCP port inside an agent: bytes both ways, each direction with an end of its own. */
import { CONNECT_PROTOCOL, connectEventSchema, PerdureError, portLimits } from "@perdure/protocol";
import type { ConnectEvent, ConnectRequest } from "@perdure/protocol";
import type { MessageSocket, SocketCall, SocketEvents, Transport } from "./transport.ts";

/** Given back when so much was taken. */
const CREDIT_BYTES = portLimits.windowBytes / 4;

/**
 * Iterate over it once for what the program sends, until it ends its side; leaving the loop closes it. What is not
 * read is not asked of the program beyond a window.
 */
export class PortConnection implements AsyncIterable<Uint8Array> {
  /** As it was given: name or id. */
  readonly agent: string;
  readonly port: number;
  readonly #socket: MessageSocket;
  readonly #pieces: Uint8Array[] = [];
  readonly #connected = Promise.withResolvers<undefined>();
  #changed = Promise.withResolvers<undefined>();
  #taken = 0;
  /** Bytes that were sent and not taken yet. */
  #sent = 0;
  /** The last write, after which the next one comes. */
  #writing: Promise<unknown> = Promise.resolve();
  #ownEnded = false;
  #theirsEnded = false;
  /** Nothing comes or goes any more; null: and nothing was missed. */
  #over: { readonly error: PerdureError | null } | undefined;

  private constructor(agent: string, port: number, socket: MessageSocket) {
    this.agent = agent;
    this.port = port;
    this.#socket = socket;
    this.#connected.promise.catch(() => undefined);
  }

  /** @internal For `Perdure.connect`. */
  static async open(
    transport: Transport,
    { agent, port }: { readonly agent: string; readonly port: number },
    call: Omit<SocketCall, "protocol">,
  ): Promise<PortConnection> {
    const early: ((connection: PortConnection) => void)[] = [];
    const opened: { connection?: PortConnection } = {};
    const whenOpen = (work: (connection: PortConnection) => void): void => {
      if (opened.connection === undefined) early.push(work);
      else work(opened.connection);
    };
    const events: SocketEvents = {
      text: (message) => whenOpen((connection) => connection.#hear(message)),
      bytes: (message) => whenOpen((connection) => connection.#receive(message)),
      closed: () => whenOpen((connection) => connection.#lose()),
    };
    const socket = await transport.socket({ ...call, protocol: CONNECT_PROTOCOL }, events);
    const connection = new PortConnection(agent, port, socket);
    opened.connection = connection;
    for (const work of early) work(connection);
    await connection.#connected.promise;
    return connection;
  }

  /** @throws `connection_reset` where the program breaks it off, `interrupted` where the agent sleeps or stops */
  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array, undefined> {
    let isWhole = false;
    try {
      for (;;) {
        const piece = this.#pieces.shift();
        if (piece !== undefined) {
          yield piece;
          this.#credit(piece.length);
          continue;
        }
        if (this.#theirsEnded || this.#over?.error === null) {
          isWhole = true;
          return;
        }
        if (this.#over !== undefined) throw this.#over.error;
        await this.#changed.promise;
      }
    } finally {
      // A program that ended its side may still be told something.
      if (!isWhole) this.close();
    }
  }

  /**
   * Sends to the program. Resolves when it was sent: a program that does not read makes the next one wait.
   *
   * @throws `connection_reset`, and `interrupted` once the agent sleeps
   * @example
   * const connection = await perdure.connect("a1", 8000).catch(() => null);
   * await connection?.write("GET / HTTP/1.0\r\n\r\n");
   * connection?.close();
   */
  write(data: string | Uint8Array): Promise<void> {
    const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data;
    const writing = this.#writing.then(() => this.#send(bytes));
    this.#writing = writing.catch(() => undefined);
    return writing;
  }

  /**
   * Ends this side, behind what was written: the program sees the end of its input. The other side goes on.
   *
   * @example
   * const connection = await perdure.connect("a1", 8000).catch(() => null);
   * await connection?.end();
   * for await (const bytes of connection ?? []) console.log(bytes.length);
   */
  end(): Promise<void> {
    const ending = this.#writing.then(() => {
      if (this.#ownEnded || this.#over !== undefined) return;
      this.#ownEnded = true;
      this.#say({ type: "end" });
    });
    this.#writing = ending.catch(() => undefined);
    return ending;
  }

  /**
   * Breaks the connection off, unless both sides have ended.
   *
   * @example
   * const connection = await perdure.connect("a1", 8000).catch(() => null);
   * connection?.close();
   */
  close(): void {
    this.#socket.close();
    this.#end(null);
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.close();
    return Promise.resolve();
  }

  async #send(bytes: Uint8Array): Promise<void> {
    for (let at = 0; at < bytes.length;) {
      if (this.#over !== undefined || this.#ownEnded) throw this.#overError();
      const room = portLimits.windowBytes - this.#sent;
      if (room === 0) {
        await this.#changed.promise;
        continue;
      }
      const part = bytes.subarray(at, at + Math.min(room, portLimits.messageBytesMax));
      at += part.length;
      this.#sent += part.length;
      this.#socket.send(part);
    }
  }

  #overError(): PerdureError {
    const { agent, port } = this;
    const message = `The connection to port ${port} of agent "${agent}" is over`;
    return this.#over?.error ?? new PerdureError("interrupted", message);
  }

  #say(message: ConnectRequest): void {
    this.#socket.send(JSON.stringify(message));
  }

  #credit(bytes: number): void {
    this.#taken += bytes;
    if (this.#taken < CREDIT_BYTES) return;
    this.#say({ type: "credit", bytes: this.#taken });
    this.#taken = 0;
  }

  #receive(message: Uint8Array): void {
    if (this.#over !== undefined) return;
    this.#pieces.push(message);
    this.#notify();
  }

  #hear(message: string): void {
    // What a newer daemon may say and nobody here knows is left out.
    const event = connectEventSchema.safeParse(JSON.parse(message));
    if (event.success) this.#take(event.data);
  }

  #take(event: ConnectEvent): void {
    switch (event.type) {
      case "connected":
        this.#connected.resolve(undefined);
        return;
      case "credit":
        this.#sent -= event.bytes;
        this.#notify();
        return;
      case "end":
        this.#theirsEnded = true;
        this.#notify();
        return;
      case "error":
        this.#end(PerdureError.fromBody(event.error));
    }
  }

  #lose(): void {
    const message = `The connection to port ${this.port} of agent "${this.agent}" broke`;
    const isWhole = this.#ownEnded && this.#theirsEnded;
    this.#end(
      isWhole ? null : new PerdureError("interrupted", message, { hint: "Connect again." }),
    );
  }

  #end(error: PerdureError | null): void {
    if (this.#over !== undefined) return;
    this.#over = { error };
    this.#connected.reject(this.#overError());
    this.#notify();
  }

  #notify(): void {
    this.#changed.resolve(undefined);
    this.#changed = Promise.withResolvers();
  }
}
