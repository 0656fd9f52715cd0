/** A program that is attached to over one WebSocket: its output, input, signals and terminal size. */
import {
  ATTACH_PROTOCOL,
  attachEventSchema,
  attachLimits,
  decodeOutput,
  PerdureError,
} from "@perdure/protocol";
import type { AttachEvent, AttachRequest, TerminalSize } from "@perdure/protocol";
import type { Output } from "./output.ts";
import { signals } from "./signal.ts";
import type { SignalName } from "./signal.ts";
import type {
  CallOptions,
  MessageSocket,
  SocketCall,
  SocketEvents,
  Transport,
} from "./transport.ts";

/** Output that may wait here for its reader, bytes. */
const WINDOW_BYTES = 262_144;
/** Given back when so much was taken. */
const CREDIT_BYTES = WINDOW_BYTES / 4;

/**
 * Iterate over it once for the output; leaving the loop closes it. Closing detaches, and the program goes on: it
 * can be attached to again, from `offset` on.
 */
export class Attachment implements AsyncIterable<Output> {
  /** As it was given: name or id. */
  readonly agent: string;
  readonly process: number;
  readonly #socket: MessageSocket;
  readonly #events: (Output | PerdureError)[] = [];
  #changed = Promise.withResolvers<undefined>();
  #offset: number;
  #taken = 0;
  /** Bytes that were sent and not taken by the program yet. */
  #sent = 0;
  #inputClosed: PerdureError | null = null;
  /** The last write, after which the next one comes. */
  #writing: Promise<unknown> = Promise.resolve();
  readonly #requests = new Map<number, PromiseWithResolvers<undefined>>();
  #nextId = 1;
  /** Nothing comes any more. */
  #ended = false;

  private constructor(agent: string, process: number, socket: MessageSocket, offset: number) {
    this.agent = agent;
    this.process = process;
    this.#socket = socket;
    this.#offset = offset;
  }

  /** @internal For `ProcessHandle.attach`. */
  static async open(
    transport: Transport,
    { agent, process }: { readonly agent: string; readonly process: number },
    call: Omit<SocketCall, "protocol"> & { readonly offset: number },
  ): Promise<Attachment> {
    const early: (() => void)[] = [];
    const opened: { attachment?: Attachment } = {};
    const whenOpen = (work: (attachment: Attachment) => void): void => {
      const { attachment } = opened;
      if (attachment === undefined) early.push(() => opened.attachment && work(opened.attachment));
      else work(attachment);
    };
    const events: SocketEvents = {
      text: (message) => whenOpen((attachment) => attachment.#hear(message)),
      bytes: (message) => whenOpen((attachment) => attachment.#receive(message)),
      closed: () => whenOpen((attachment) => attachment.#close()),
    };
    const query = { ...call.query, window: WINDOW_BYTES };
    const { path, signal } = call;
    const wanted = { path, query, signal, protocol: ATTACH_PROTOCOL };
    const socket = await transport.socket(wanted, events);
    const attachment = new Attachment(agent, process, socket, call.offset);
    opened.attachment = attachment;
    for (const work of early) work();
    return attachment;
  }

  /** Where the output goes on that was not yielded yet. */
  get offset(): number {
    return this.#offset;
  }

  /** @throws `interrupted` where the connection breaks off, and what the daemon met while reading */
  async *[Symbol.asyncIterator](): AsyncGenerator<Output, undefined> {
    try {
      for (;;) {
        const event = this.#events.shift();
        if (event instanceof PerdureError) throw event;
        if (event !== undefined) {
          if (event.type === "output") this.#offset = event.offset + event.bytes.length;
          if (event.type === "cut") this.#offset = event.to;
          yield event;
          if (event.type === "exit" || event.type === "interrupted") return;
          if (event.type === "output") this.#credit(event.bytes.length);
          continue;
        }
        if (this.#ended) return;
        await this.#changed.promise;
      }
    } finally {
      this.close();
    }
  }

  /**
   * Types on the terminal, or writes to stdin. Resolves when it was sent: a program that does not read makes the
   * next one wait.
   *
   * @throws `stdin_closed`, and `interrupted` once the attachment has ended
   * @example
   * await using terminal = await perdure.terminal("a1", ["cat"]);
   * await terminal.write("hello\n");
   * for await (const event of terminal) {
   *   if (event.type === "output") break;
   * }
   */
  write(data: string | Uint8Array): Promise<void> {
    const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data;
    const writing = this.#writing.then(() => this.#send(bytes));
    this.#writing = writing.catch(() => undefined);
    return writing;
  }

  /**
   * Ends stdin, behind what was written; on a terminal it types ^D.
   *
   * @example
   * const process = await perdure.exec("a1", ["wc", "-c"], { stdin: true });
   * await using attached = await process.attach();
   * await attached.write("hello");
   * await attached.end();
   * for await (const event of attached) {
   *   if (event.type === "output") console.log(new TextDecoder().decode(event.bytes)); // 5
   * }
   */
  end(): Promise<void> {
    const ending = this.#writing.then(() => {
      this.#requireInput();
      this.#say({ type: "end" });
    });
    this.#writing = ending.catch(() => undefined);
    return ending;
  }

  /**
   * Gives the terminal another size, of which the program is told.
   *
   * @throws `not_supported` where the program has no terminal, `process_ended`
   * @example
   * await using terminal = await perdure.terminal("a1", ["cat"]);
   * await terminal.resize({ rows: 50, columns: 132 });
   */
  resize({ rows, columns }: TerminalSize): Promise<void> {
    return this.#ask((id) => ({ type: "resize", id, rows, columns }));
  }

  /**
   * Sends a signal to the program and everything it started. What is typed does not hold it up.
   *
   * @param options.tree false: the program alone
   * @throws `process_ended`
   * @example
   * await using terminal = await perdure.terminal("a1", ["sleep", "60"]);
   * await terminal.signal("SIGHUP");
   */
  signal(
    signal: number | SignalName = "SIGTERM",
    { tree = true }: { readonly tree?: boolean } = {},
  ): Promise<void> {
    const number = typeof signal === "number" ? signal : signals[signal];
    return this.#ask((id) => ({ type: "signal", id, signal: number, tree }));
  }

  /**
   * Detaches: the loop over the output ends, and the program goes on.
   *
   * @example
   * const terminal = await perdure.terminal("a1", ["sleep", "60"]);
   * terminal.close();
   * const again = await perdure.attach("a1", terminal.process, { offset: terminal.offset });
   * await again.signal("SIGKILL");
   * again.close();
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
      const room = attachLimits.inputWindowBytes - this.#sent;
      this.#requireInput();
      if (room === 0) {
        await this.#changed.promise;
        continue;
      }
      const part = bytes.subarray(at, at + Math.min(room, attachLimits.messageBytesMax));
      at += part.length;
      this.#sent += part.length;
      this.#socket.send(part);
    }
  }

  #requireInput(): void {
    if (this.#inputClosed !== null) throw this.#inputClosed;
    if (this.#ended) throw this.#endedError();
  }

  #ask(request: (id: number) => AttachRequest): Promise<void> {
    if (this.#ended) return Promise.reject(this.#endedError());
    const id = this.#nextId++;
    const answer = Promise.withResolvers<undefined>();
    this.#requests.set(id, answer);
    this.#say(request(id));
    return answer.promise;
  }

  #say(message: AttachRequest): void {
    this.#socket.send(JSON.stringify(message));
  }

  #credit(bytes: number): void {
    this.#taken += bytes;
    if (this.#taken < CREDIT_BYTES) return;
    this.#say({ type: "credit", bytes: this.#taken });
    this.#taken = 0;
  }

  #receive(message: Uint8Array): void {
    const output = decodeOutput(message);
    if (output !== null) this.#push({ type: "output", ...output });
  }

  #hear(message: string): void {
    // What a newer daemon may say and nobody here knows is left out.
    const event = attachEventSchema.safeParse(JSON.parse(message));
    if (event.success) this.#take(event.data);
  }

  #take(event: AttachEvent): void {
    switch (event.type) {
      case "attached":
        return;
      case "credit":
        this.#sent -= event.bytes;
        this.#notify();
        return;
      case "input-closed":
        this.#inputClosed = PerdureError.fromBody(event.error);
        this.#notify();
        return;
      case "done":
        this.#requests.get(event.id)?.resolve(undefined);
        this.#requests.delete(event.id);
        return;
      case "refused":
        this.#requests.get(event.id)?.reject(PerdureError.fromBody(event.error));
        this.#requests.delete(event.id);
        return;
      case "error":
        this.#end(PerdureError.fromBody(event.error));
        return;
      case "cut":
        this.#push(event);
        return;
      case "exit":
      case "interrupted":
        this.#push(event);
        this.#end(null);
    }
  }

  #close(): void {
    const { agent, process } = this;
    const offset = this.#offset;
    this.#end(
      new PerdureError("interrupted", "The connection ended before the program did", {
        hint: `Attach again to process ${process} of agent "${agent}" from offset ${offset}.`,
        details: { offset },
      }),
    );
  }

  #push(event: Output): void {
    if (this.#ended) return;
    this.#events.push(event);
    this.#notify();
  }

  /** `error` is thrown behind what came before; null: the last event says it. */
  #end(error: PerdureError | null): void {
    if (this.#ended) return;
    if (error !== null) this.#events.push(error);
    this.#ended = true;
    for (const { reject } of this.#requests.values()) reject(error ?? this.#endedError());
    this.#requests.clear();
    this.#notify();
  }

  #endedError(): PerdureError {
    const { agent, process } = this;
    return new PerdureError(
      "interrupted",
      `Process ${process} of agent "${agent}" is not attached`,
      {
        hint: "Attach to it again, or look whether it has ended.",
      },
    );
  }

  #notify(): void {
    this.#changed.resolve(undefined);
    this.#changed = Promise.withResolvers();
  }
}

export interface AttachOptions extends CallOptions {
  /** Of the first byte of output that is wanted; default 0, the beginning. */
  readonly offset?: number;
  /** false: `agent_state` where the agent is asleep, in place of waking it. */
  readonly wakes?: boolean;
  /**
   * true: where the connection ends before the program has, because this process does or closes it, the program
   * and all that it started get SIGHUP.
   */
  readonly hangsUp?: boolean;
}
